// What there is to configure of a tier.
#include <algorithm>

#include "actors/runtime/config_table.hpp"

namespace perdura::runtime {
namespace {

constexpr std::size_t tier_name_max = 32;

bool is_tier_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= tier_name_max && std::all_of(name.begin(), name.end(), is_allowed);
}

}  // namespace

config_table fields_of(tier_config& t) {
  config_table table;
  const std::string section = "tier." + t.name;
  const auto text = [&](const char* key, std::string* value, std::vector<std::string> choices,
                        const char* why) {
    table.push_back({section, key, value, "", 0, 0, std::move(choices), why, section + "." + key});
  };
  const auto number = [&](const char* key, std::uint32_t* value, double least, double most, const char* unit,
                          const char* why) {
    table.push_back({section, key, value, unit, least, most, {}, why, section + "." + key});
  };
  const auto flag = [&](const char* key, bool* value, const char* why) {
    table.push_back({section, key, value, "", 0, 0, {}, why, section + "." + key});
  };
  text("kind", &t.kind, {"s3", "folder"},
       "a service that speaks S3's protocol, or a folder, perhaps a shared one");
  text("folder", &t.folder, {}, "of kind folder: where it is; not the coordinator's own data_folder");
  text("endpoint", &t.endpoint, {},
       "of kind s3: the service's URL, as https://s3.eu-central-1.amazonaws.com");
  text("bucket", &t.bucket, {}, "must exist");
  text("prefix", &t.prefix, {}, "objects are below it; one cluster, one prefix");
  text("region", &t.region, {}, "the bucket's; part of every signature");
  text("addressing", &t.addressing, {"path", "host"},
       "where the bucket's name goes: endpoint/BUCKET, or BUCKET.endpoint");
  text("credentials_file", &t.credentials_file, {},
       "in the usual format, [profile] and aws_access_key_id, aws_secret_access_key, aws_session_token; read "
       "again for each request; empty: AWS_ACCESS_KEY_ID and so on in the coordinator's environment");
  text("profile", &t.profile, {}, "section of the credentials file");
  text("ca_file", &t.ca_file, {}, "authorities that may vouch for the service; empty: the system's");
  flag("conditional_puts", &t.conditional_puts,
       "false: for a service that refuses If-None-Match; it is then asked before each put");
  flag("plain_http", &t.plain_http, "allow an endpoint without TLS beyond this machine");
  number("keep", &t.keep, 1, 1000, "checkpoints",
         "of each job, the newest; older ones are removed from the tier");
  number("part_mb", &t.part_mb, 5, 1024, "MiB",
         "larger packs go up in parts of this size, each one in memory");
  number("upload_mb_per_s", &t.upload_mb_per_s, 0, 1e5, "MB/s", "0: as fast as it goes");
  return table;
}

std::vector<broken_rule> broken_rules(const tier_config& t) {
  std::vector<broken_rule> broken;
  const std::string section = "tier." + t.name + ".";
  const auto needs = [&](const char* key, const std::string& value) {
    if (value.empty())
      broken.push_back({{section + key, section + "kind"}, "is empty, but kind is \"" + t.kind + "\""});
  };
  if (!is_tier_name(t.name))
    broken.push_back(
        {{section + "kind"}, "is in a section whose name is not 1 to 32 letters, digits, \"-\" or \"_\""});
  if (t.kind == "folder") needs("folder", t.folder);
  if (t.kind != "s3") return broken;
  needs("endpoint", t.endpoint);
  needs("bucket", t.bucket);
  return broken;
}

}  // namespace perdura::runtime
