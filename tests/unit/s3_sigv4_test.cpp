#include "storage/s3/sigv4.hpp"

#include <doctest/doctest.h>

using namespace perdura;
using namespace perdura::storage::s3;
using namespace std::chrono_literals;

namespace {

// Of "Signature Calculations for the Authorization Header" in the Amazon S3 API reference.
const credentials example{"AKIAIOSFODNN7EXAMPLE", secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), {}};
const signing_scope at_that_day{"us-east-1", "s3",
                                std::chrono::sys_days(std::chrono::year(2013) / std::chrono::May / 24)};
constexpr const char* empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

signable_request example_request(const std::string& method, const std::string& path,
                                 const std::string& hash) {
  return {method,
          path,
          {},
          {{"Host", "examplebucket.s3.amazonaws.com"},
           {"x-amz-content-sha256", hash},
           {"x-amz-date", date_time(at_that_day.at)}},
          hash};
}

std::string signature(const signable_request& r) {
  const auto text = authorization(r, at_that_day, example);
  return text.substr(text.find("Signature=") + 10);
}

}  // namespace

TEST_CASE("the reference's example of a read of a range is signed as printed") {
  auto r = example_request("GET", "/test.txt", empty_hash);
  r.headers.emplace_back("Range", "bytes=0-9");
  CHECK(authorization(r, at_that_day, example) ==
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST_CASE("the reference's example of a put, with an odd character in its key, is signed as printed") {
  auto r = example_request("PUT", "/test$file.text", hex_sha256("Welcome to Amazon S3."));
  r.headers.emplace_back("Date", "Fri, 24 May 2013 00:00:00 GMT");
  r.headers.emplace_back("x-amz-storage-class", "REDUCED_REDUNDANCY");
  CHECK(signature(r) == "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST_CASE("the reference's example of a query key without a value is signed as printed") {
  auto r = example_request("GET", "/", empty_hash);
  r.query = {{"lifecycle", ""}};
  CHECK(signature(r) == "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST_CASE("the reference's example of a list is signed as printed") {
  auto r = example_request("GET", "/", empty_hash);
  r.query = {{"prefix", "J"}, {"max-keys", "2"}};
  CHECK(signature(r) == "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("the suite's plainest request, of another service, is signed as published") {
  const signing_scope scope{
      "us-east-1", "service",
      std::chrono::sys_days(std::chrono::year(2015) / std::chrono::August / 30) + 12h + 36min};
  const credentials who{"AKIDEXAMPLE", secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), {}};
  const signable_request r{
      "GET", "/", {}, {{"Host", "example.amazonaws.com"}, {"X-Amz-Date", date_time(scope.at)}}, empty_hash};
  const auto text = authorization(r, scope, who);
  CHECK(text.ends_with("Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"));
}

TEST_CASE("a query is sorted by its encoded keys, then values, and keeps keys that come twice") {
  CHECK(canonical_query({{"b", "2"}, {"a", "z"}, {"uploads", ""}, {"a", "b"}, {"a", "B"}}) ==
        "a=B&a=b&a=z&b=2&uploads=");
  CHECK(canonical_query({{"prefix", "a b/c+d&e=f"}, {"marker", "\xc3\xa9*~"}}) ==
        "marker=%C3%A9%2A~&prefix=a%20b%2Fc%2Bd%26e%3Df");
  CHECK(canonical_query({}).empty());
}

TEST_CASE("a path keeps its slashes, even two in a row, and is encoded once") {
  CHECK(uri_encoded("/bucket/a//b%20 c/../d", true) == "/bucket/a//b%2520%20c/../d");
  CHECK(uri_encoded("a/b", false) == "a%2Fb");
}

TEST_CASE("headers are signed by their small names, sorted, with white space collapsed") {
  const signable_request r{
      "GET", "/", {}, {{"X-B", "  one   two "}, {"Host", "h"}, {"x-a", "1"}, {"X-A", "2"}}, "hash"};
  CHECK(canonical_request(r) == "GET\n/\n\nhost:h\nx-a:1,2\nx-b:one two\n\nhost;x-a;x-b\nhash");
}

TEST_CASE("a secret does not convert to text, and credentials without their secrets print none") {
  static_assert(!std::is_convertible_v<secret, std::string>);
  const credentials who{"AKID", secret("hush"), secret("ticket")};
  CHECK(without_secrets("you sent hush and ticket, hush", who) == "you sent *** and ***, ***");
}
