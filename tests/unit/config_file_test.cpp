#include "actors/runtime/config_file.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "actors/runtime/config_table.hpp"

using namespace perdura;
using namespace std::chrono_literals;
using runtime::parse_job;
using runtime::resolve_cluster;

namespace {

std::string job_errors(const std::string& text) {
  const auto job = parse_job(text, "job.toml");
  REQUIRE_FALSE(job.has_value());
  CHECK(job.failure().code == errc::invalid_argument);
  return job.failure().message;
}

std::string cluster_errors(const std::string& text, const runtime::text_map& flags = {},
                           const runtime::text_map& environment = {}) {
  const auto cluster = resolve_cluster(flags, environment, runtime::file_text{"c.toml", text});
  REQUIRE_FALSE(cluster.has_value());
  return cluster.failure().message;
}

long lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n') + 1; }

}  // namespace

TEST_CASE("an empty job file is the defaults, and the defaults are allowed") {
  const auto job = parse_job("", "job.toml");
  REQUIRE(job.has_value());
  CHECK(job->model.width == job_config{}.model.width);
  CHECK(resolve_cluster({}, {}, std::nullopt).has_value());
}

TEST_CASE("a job's values land in their fields") {
  const auto job = parse_job(R"(
name = "a"
seed = 9
steps = 60
[model]
width = 64
heads = 4
patch = 7
[data]
folder = "/data"
label_drop = 0
[batch]
size = 64
slots = 8
[optimizer]
learning_rate = 1e-3
warmup_steps = 5
[sample]
steps = 20
)",
                             "job.toml");
  REQUIRE(job.has_value());
  CHECK(job->name == "a");
  CHECK(job->seed == 9);
  CHECK(job->steps == 60);
  CHECK(job->model.width == 64);
  CHECK(job->model.heads == 4);
  CHECK(job->data.folder == "/data");
  CHECK(job->data.label_drop == 0.0);
  CHECK(job->batch.slots == 8);
  CHECK(job->optimizer.learning_rate == 1e-3);
  CHECK(job->sample.steps == 20);
}

TEST_CASE("an unknown key is refused with its line and the nearest known one") {
  CHECK(job_errors("[model]\nwidht = 128") == "job.toml:2: model.widht: is unknown, did you mean \"width\"?");
  CHECK(job_errors("[modle]\nwidth = 128") == "job.toml:1: modle: is unknown, did you mean \"model\"?");
  CHECK(job_errors("zzzzzzzz = 1") == "job.toml:1: zzzzzzzz: is unknown");
  CHECK(job_errors("steps.a = 1") == "job.toml:1: steps: must be a single value, 1 to 1000000000");
}

TEST_CASE("a wrong type is refused with what is allowed") {
  CHECK(job_errors("steps = \"many\"") ==
        "job.toml:1: steps: is text, must be a whole number, 1 to 1000000000");
  CHECK(job_errors("steps = 1.5") == "job.toml:1: steps: is 1.5, must be a whole number, 1 to 1000000000");
  CHECK(job_errors("steps = true") == "job.toml:1: steps: is true or false, must be 1 to 1000000000");
  CHECK(job_errors("precision = 32") ==
        "job.toml:1: precision: is a number, must be text in quotes (one of: fp32, bf16)");
  CHECK(job_errors("model = 3") == "job.toml:1: model: is unknown, did you mean \"model\"?");
}

TEST_CASE("a value out of its range is refused with the range") {
  CHECK(job_errors("steps = 0") == "job.toml:1: steps: is 0, must be 1 to 1000000000 steps");
  CHECK(job_errors("steps = -5").find("is -5, must be 1 to") != std::string::npos);
  CHECK(job_errors("[data]\nlabel_drop = nan").find("must be 0 to 1") != std::string::npos);
  CHECK(job_errors("[optimizer]\nlearning_rate = inf").find("must be 0 to 10") != std::string::npos);
  CHECK(job_errors("precision = \"fp23\"") ==
        "job.toml:1: precision: is \"fp23\", must be one of: fp32, bf16, did you mean \"fp32\"?");
}

TEST_CASE("values that do not fit together are refused by both names") {
  CHECK(job_errors("[batch]\nslots = 12\nsize = 120") ==
        "job.toml:2: batch.slots: is 12, must be a power of two, for example 8");
  CHECK(job_errors("[batch]\nsize = 100") ==
        "job.toml:2: batch.size: is 100, must be a multiple of batch.slots (16)");
  CHECK(job_errors("[model]\nheads = 3") == "job.toml:2: model.heads: is 3, must divide model.width (128)");
  CHECK(job_errors("[model]\npatch = 5").find("1, 2, 4, 7, 14 or 28") != std::string::npos);
  CHECK(job_errors("steps = 10").find("optimizer.warmup_steps: is 50, must be at most steps (10)") !=
        std::string::npos);
  CHECK(job_errors("name = \"a b\"").find("letters, digits") != std::string::npos);
}

TEST_CASE("all errors of a file come at once, one line each, and a broken field breaks no rule") {
  const auto errors =
      job_errors("step = 1\n[model]\nwidth = \"wide\"\nheads = 3\npatch = 5\n[batch]\nslots = 5000");
  CHECK(lines(errors) == 4);
  CHECK(errors.find("job.toml:1: step: is unknown") != std::string::npos);
  CHECK(errors.find("job.toml:3: model.width") != std::string::npos);
  CHECK(errors.find("job.toml:5: model.patch") != std::string::npos);
  CHECK(errors.find("job.toml:7: batch.slots: is 5000, must be 1 to 4096") != std::string::npos);
}

TEST_CASE("what is no TOML is refused with its line") {
  CHECK(job_errors("name = \"a\"\nsteps = = 3").find("job.toml:2: syntax: ") == 0);
  CHECK(job_errors(std::string("\0\x01\xff", 3)).find("syntax") != std::string::npos);
  CHECK(job_errors("seed = 1\nseed = 2").find("job.toml:2") == 0);
}

TEST_CASE("a flag outranks the environment, that the file, that the default") {
  const runtime::file_text file{"c.toml", "port = 1\nadmin_port = 2\nlease_ms = 1111"};
  const auto c = resolve_cluster(
      {{"port", "100"}}, {{"PERDURA_PORT", "10"}, {"PERDURA_ADMIN_PORT", "20"}, {"OTHER", "x"}}, file);
  REQUIRE(c.has_value());
  CHECK(c->port == 100);
  CHECK(c->admin_port == 20);
  CHECK(c->lease == 1111ms);
  CHECK(c->heartbeat == cluster_config{}.heartbeat);
}

TEST_CASE("errors say whether flag, environment or file is to blame") {
  CHECK(cluster_errors("", {{"lease_ms", "soon"}}) ==
        "--lease-ms: lease_ms: is \"soon\", must be a whole number, 50 to 3600000");
  CHECK(cluster_errors("", {}, {{"PERDURA_PORT", "99999"}}) ==
        "environment PERDURA_PORT: port: is 99999, must be 0 to 65535");
  CHECK(cluster_errors("", {{"prot", "1"}}) == "--prot: prot: is unknown");
  CHECK(cluster_errors("\n\nport = -1").find("c.toml:3: port") == 0);
}

TEST_CASE("timeouts in a wrong order are refused with the two names") {
  CHECK(cluster_errors("heartbeat_ms = 600") ==
        "c.toml:1: lease_ms: is 1500, must be more than 3 times heartbeat_ms (600)");
  CHECK(cluster_errors("lease_ms = 20000")
            .find("step_timeout_ms: is 10000, must be more than lease_ms (20000)") != std::string::npos);
  CHECK(cluster_errors("step_timeout_ms = 30000")
            .find("join_timeout_ms: is 30000, must be more than step_timeout_ms") != std::string::npos);
  CHECK(cluster_errors("admin_port = 7400").find("must differ from port") != std::string::npos);
}

TEST_CASE("a host beyond loopback is refused with the reason") {
  CHECK(cluster_errors("host = \"0.0.0.0\"").find("the cluster's certificates are needed") !=
        std::string::npos);
  CHECK_FALSE(resolve_cluster({{"host", "127.0.0.1.example.org"}}, {}, std::nullopt).has_value());
  CHECK(resolve_cluster({{"host", "localhost"}}, {}, std::nullopt).has_value());
}

TEST_CASE("the cluster's file is looked for where people expect it") {
  using files = std::vector<std::string>;
  CHECK(runtime::cluster_file_candidates({{"HOME", "/h"}}) ==
        files{"perdura.toml", "/h/.config/perdura/cluster.toml", "/etc/perdura/cluster.toml"});
  CHECK(runtime::cluster_file_candidates({{"HOME", "/h"}, {"XDG_CONFIG_HOME", "/x"}})[1] ==
        "/x/perdura/cluster.toml");
  CHECK(runtime::cluster_file_candidates({{"PERDURA_CONFIG", "/a.toml"}}) == files{"/a.toml"});
}

TEST_CASE("a file that is named must be there, and be a file of sane size") {
  CHECK(runtime::load_cluster({}, "/nonexistent.toml").failure().code == errc::not_found);
  CHECK(runtime::read_config_file("/tmp").failure().code == errc::io);
  CHECK(runtime::read_config_file("/dev/zero").failure().code == errc::io);
  char name[] = "/tmp/perdura_config_XXXXXX";
  ::close(::mkstemp(name));
  std::ofstream(name) << std::string(runtime::config_bytes_max + 1, '#');
  CHECK(runtime::read_config_file(name).failure().code == errc::exhausted);
  std::ofstream(name) << "port = 5";
  CHECK(runtime::load_cluster({{"admin_port", "6"}}, name)->port == 5);
  std::filesystem::remove(name);
}

TEST_CASE("the files in configs/ are what they say") {
  const std::string configs = PERDURA_CONFIGS;
  for (const char* name : {"/jobs/fashion-dit.toml", "/jobs/fashion-dit-quick.toml"}) {
    const auto file = runtime::read_config_file(configs + name);
    REQUIRE(file.has_value());
    const auto job = parse_job(file->text, file->name);
    REQUIRE_MESSAGE(job.has_value(), (job ? "" : job.failure().message));
  }
  CHECK(runtime::load_cluster({}, configs + "/cluster.toml").has_value());
}

TEST_CASE("every field has its own name, a default in its range and an entry in the reference") {
  job_config job;
  cluster_config cluster;
  const auto reference = runtime::config_reference();
  for (auto table : {runtime::fields_of(job), runtime::fields_of(cluster)})
    for (auto& field : table) {
      CHECK(std::count_if(table.begin(), table.end(),
                          [&](const auto& f) { return f.name() == field.name(); }) == 1);
      CHECK(reference.find("| `" + field.key + "` | `" + runtime::value_text(field) + "`") !=
            std::string::npos);
      auto text = runtime::value_text(field);
      std::erase(text, '"');
      CHECK(runtime::set_from_text(field, text) == "");
    }
}

TEST_CASE("a machine's labels and its notices come from file, environment and flags") {
  const runtime::file_text file{"c.toml", R"(
[labels]
host = "box"
rack = "r1"
zone = "z1"
[preemption]
grace_ms = 5000
notice_file = "/run/go"
metadata = "url"
metadata_url = "http://127.0.0.1:1/going"
)"};
  const auto all = runtime::resolve_file({{"host_label", "other"}, {"grace_ms", "7000"}},
                                         {{"PERDURA_LABELS_RACK", "r2"}, {"PERDURA_RACK", "no"}}, file);
  REQUIRE_MESSAGE(all.has_value(), (all ? "" : all.failure().message));
  CHECK(all->cluster.host == "127.0.0.1");
  CHECK(all->node.labels == node_labels{"other", "r2", "z1"});
  CHECK(all->node.preemption.grace == 7s);
  CHECK(all->node.preemption.notice_file == "/run/go");
  CHECK(all->node.preemption.metadata == "url");
}

TEST_CASE("a label with spaces, a service without an address and an unknown service are refused by name") {
  const auto errors = cluster_errors(R"(
[labels]
rack = "a b"
[preemption]
metadata = "url"
)");
  CHECK(errors.find("c.toml:3: labels.rack: must be at most 128 bytes without spaces") != std::string::npos);
  CHECK(errors.find("preemption.metadata_url: is empty") != std::string::npos);
  CHECK(cluster_errors("[preemption]\nmetadata_url = \"ftp://x\"\n").find("http://") != std::string::npos);
  CHECK(cluster_errors("", {{"metadata", "aws2"}}).find("--metadata: preemption.metadata: is \"aws2\"") == 0);
  CHECK(cluster_errors("[labels]\nrakc = \"a\"\n").find("did you mean \"rack\"") != std::string::npos);
}

TEST_CASE("each tier has a section of its own, and a variable for each of its keys") {
  const auto cluster =
      resolve_cluster({}, {{"PERDURA_TIER_FAR_AWAY_BUCKET", "other"}}, runtime::file_text{"c.toml", R"(
port = 7500
[tier.far-away]
endpoint = "https://s3.example.com"
bucket = "b"
prefix = "runs/a"
keep = 3
[tier.shared]
kind = "folder"
folder = "/mnt/shared"
)"});
  REQUIRE_MESSAGE(cluster.has_value(), (cluster ? "" : cluster.failure().message));
  REQUIRE(cluster->tiers.size() == 2);
  CHECK(cluster->tiers[0].name == "far-away");
  CHECK(cluster->tiers[0].bucket == "other");
  CHECK(cluster->tiers[0].keep == 3);
  CHECK(cluster->tiers[1].folder == "/mnt/shared");
  CHECK(cluster->port == 7500);
}

TEST_CASE("a tier that cannot work is refused with its section's name, and no secret has a key") {
  CHECK(cluster_errors("[tier.far]\nbucket = \"b\"") ==
        "c.toml: tier.far.endpoint: is empty, but kind is \"s3\"");
  CHECK(cluster_errors("[tier.far]\nkind = \"folder\"") ==
        "c.toml:2: tier.far.folder: is empty, but kind is \"folder\"");
  CHECK(cluster_errors("[tier.far]\nendpont = \"x\"").find("tier.far.endpont: is unknown, did you mean") !=
        std::string::npos);
  CHECK(cluster_errors("[tier]\nbucket = \"b\"").find("tier") != std::string::npos);
  const auto secret = cluster_errors("[tier.far]\nsecret_access_key = \"hush\"");
  CHECK(secret.find("is unknown") != std::string::npos);
  CHECK(secret.find("hush") == std::string::npos);
}
