// Signs what sigv4_parity.py asks for: a request a line of JSON, a canonical request and a signature a line
// back.
#include <boost/json.hpp>
#include <iostream>
#include <string>

#include "storage/s3/sigv4.hpp"

namespace {

namespace json = boost::json;
using namespace perdura::storage::s3;

std::vector<text_pair> pairs_of(const json::value& list) {
  std::vector<text_pair> pairs;
  for (const auto& pair : list.as_array())
    pairs.emplace_back(std::string(pair.at(0).as_string()), std::string(pair.at(1).as_string()));
  return pairs;
}

std::string text_of(const json::value& in, const char* name) { return std::string(in.at(name).as_string()); }

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto in = json::parse(line);
    const signable_request request{text_of(in, "method"), text_of(in, "path"), pairs_of(in.at("query")),
                                   pairs_of(in.at("headers")), text_of(in, "payload_hash")};
    const signing_scope scope{text_of(in, "region"), "s3",
                              std::chrono::sys_seconds(std::chrono::seconds(in.at("at").as_int64()))};
    const auto canonical = canonical_request(request);
    const json::object out{
        {"canonical", canonical},
        {"signature", signature_of(string_to_sign(canonical, scope), scope, secret(text_of(in, "secret")))}};
    std::cout << json::serialize(out) << std::endl;
  }
  return 0;
}
