#include "storage/safetensors/strict_json.hpp"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <set>
#include <string>
#include <vector>

namespace perdura::safetensors {
namespace {

namespace json = boost::json;
using boost::system::error_code;

constexpr std::size_t shown_max = 100;

// Looks on while Boost's parser reads, and stops it. Values themselves are nobody's business here.
struct watcher {
  static constexpr std::size_t max_object_size = json_keys_max;
  static constexpr std::size_t max_array_size = json_list_max;
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);

  std::vector<std::set<std::string, std::less<>>> open;  // the keys of the objects around
  std::string key;
  std::string flaw;

  bool refuse(std::string why, error_code& ec) {
    flaw = std::move(why);
    ec = json::error::syntax;  // any will do: `flaw` is what is shown
    return false;
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, error_code&) {
    open.pop_back();
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t, error_code&) { return true; }
  bool on_key_part(json::string_view part, std::size_t, error_code&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, error_code& ec) {
    key.append(part.data(), part.size());
    if (!open.back().insert(std::move(key)).second) {
      const std::string twice(part.data(), part.size());
      return refuse("the key '" + twice.substr(0, shown_max) + "' is there twice", ec);
    }
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, error_code&) { return true; }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, error_code&) { return true; }
  bool on_double(double, json::string_view, error_code&) { return true; }
  bool on_bool(bool, error_code&) { return true; }
  bool on_null(error_code&) { return true; }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }
};

}  // namespace

result<json::value> parse_strictly(std::string_view text) {
  json::parse_options options;
  options.max_depth = json_depth_max;
  json::basic_parser<watcher> parser(options);
  error_code failed;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), failed);
  const auto& flaw = parser.handler().flaw;
  if (!flaw.empty()) return error{errc::corrupt, flaw};
  if (failed)
    return error{errc::corrupt,
                 "it is not the JSON expected at byte " + std::to_string(read) + ": " + failed.message()};
  const auto behind = text.substr(read);
  if (const auto more = behind.find_first_not_of(" \t\r\n"); more != behind.npos)
    return error{errc::corrupt, "something follows the JSON at byte " + std::to_string(read + more)};
  json::value value = json::parse({text.data(), text.size()}, failed, {}, options);
  if (failed) return error{errc::corrupt, "it is not JSON: " + failed.message()};
  return value;
}

}  // namespace perdura::safetensors
