// What the S3 tier is made of, without a server: answers in XML, the policy of retries, credentials,
// settings.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <set>

#include "storage/s3/client.hpp"
#include "storage/s3/upload.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;
using namespace perdura::storage::s3;
using namespace std::chrono_literals;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

attempt answered(int status, const std::string& code = "") { return {fate::answered, status, code, {}}; }

const retry_schedule::time_point start{};

std::string setting_error(const std::function<void(s3_options&)>& spoil) {
  s3_options o;
  o.endpoint = "https://s3.example.com";
  o.bucket = "bucket";
  spoil(o);
  const auto at = resolve(o);
  return at ? "" : at.failure().message;
}

}  // namespace

// ---- XML

TEST_CASE("a list's keys are decoded where the service says that it encoded them") {
  const auto page = parse_listing(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult "
      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
      "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
      "<NextContinuationToken>t&amp;1</NextContinuationToken>"
      "<Contents><Key>a%20b%2Bc/d+e</Key><Size>7</Size></Contents></ListBucketResult>");
  REQUIRE(page.has_value());
  REQUIRE(page->entries.size() == 1);
  CHECK(page->entries[0] == object_entry{"a b+c/d e", 7});
  CHECK(page->next == "t&1");
  const auto plain = parse_listing(
      "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a%20b</Key><Size>0</Size></Contents>"
      "</ListBucketResult>");
  REQUIRE(plain.has_value());
  CHECK(plain->entries[0].name == "a%20b");
  CHECK(plain->next.empty());
}

TEST_CASE("hostile XML is only refused") {
  std::string deep, wide = "<ListBucketResult>";
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  for (std::size_t i = 0; i <= xml_entries_max; ++i)
    wide += "<Contents><Key>k</Key><Size>1</Size></Contents>";
  const std::vector<std::string> hostile{
      "",
      "no xml",
      "<ListBucketResult>",
      "<Error/>",
      deep,
      "<ListBucketResult/><ListBucketResult/>",
      "<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult/>",
      "<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><ListBucketResult/>",
      "<ListBucketResult><Contents><Key>k</Key><Size>-1</Size></Contents></ListBucketResult>",
      "<ListBucketResult><Contents><Key>k</Key><Size>1e3</Size></Contents></ListBucketResult>",
      "<ListBucketResult><Contents><Key>k</Key><Size>99999999999999999999</Size></Contents></"
      "ListBucketResult>",
      "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
      "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%4</Key><Size>1</Size></Contents>"
      "</ListBucketResult>",
      "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
      "<ListBucketResult><Contents><Key>" + std::string(4000, 'k') +
          "</Key><Size>1</Size></Contents>"
          "</ListBucketResult>",
      wide + "</ListBucketResult>",
      "<ListBucketResult>" + std::string(xml_bytes_max, ' ') + "</ListBucketResult>",
      std::string("<ListBucketResult>\0</ListBucketResult>", 38)};
  for (const auto& text : hostile) {
    const auto page = parse_listing(text);
    INFO(text.substr(0, 120));
    CHECK_FALSE(page.has_value());
    if (!page) CHECK(page.failure().code == errc::corrupt);
  }
}

TEST_CASE("entities that expand themselves are not expanded") {
  const auto page = parse_listing(
      "<ListBucketResult><Contents><Key>&b;&#65;</Key><Size>1</Size></Contents></ListBucketResult>");
  REQUIRE(page.has_value());
  CHECK(page->entries[0].name == "&b;A");
}

TEST_CASE("parts and uploads are read with their quotes off and their markers") {
  const auto parts = parse_parts(
      "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker>"
      "<Part><PartNumber>2</PartNumber><Size>5</Size><ETag>&quot;ab&quot;</ETag></Part></ListPartsResult>");
  REQUIRE(parts.has_value());
  CHECK(parts->parts[0].etag == "ab");
  CHECK(parts->next == "2");
  CHECK_FALSE(
      parse_parts("<ListPartsResult><Part><PartNumber>10001</PartNumber><Size>5</Size><ETag>a</ETag>"
                  "</Part></ListPartsResult>"));
  const auto uploads = parse_uploads(
      "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u</UploadId></Upload>"
      "</ListMultipartUploadsResult>");
  REQUIRE(uploads.has_value());
  CHECK(uploads->uploads[0].id == "u");
  CHECK(uploads->next_key.empty());
}

TEST_CASE("a completed upload that says Error is none") {
  CHECK(parse_completed("\n\n<CompleteMultipartUploadResult/>").has_value());
  CHECK_FALSE(parse_completed("<Error><Code>InternalError</Code></Error>").has_value());
  CHECK_FALSE(parse_completed("").has_value());
}

TEST_CASE("what a service says of an error is made short and printable") {
  const auto said = parse_error("<Error><Code>SlowDown</Code><Message>be\nslow\x01" + std::string(1000, 'x') +
                                "</Message></Error>");
  CHECK(said.code == "SlowDown");
  CHECK(said.message.size() == 300);
  CHECK(said.message.starts_with("be slow xxx"));
  CHECK(parse_error("<html>gone</html>").code.empty());
  CHECK(parse_error("<Error><Code>a b;c</Code></Error>").code.empty());
}

TEST_CASE("what completes an upload carries no markup that an answer smuggled in") {
  CHECK(complete_request({{1, 5, "a\"</ETag><x>&b"}}) ==
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Part><PartNumber>1"
        "</PartNumber><ETag>&quot;a/ETagxb&quot;</ETag></Part></CompleteMultipartUpload>");
}

// ---- retries

TEST_CASE("what passes by itself is tried again, what does not is not") {
  for (const int status : {408, 429, 500, 502, 503, 504}) CHECK(is_worth_another_try(answered(status)));
  for (const int status : {301, 400, 403, 404, 412, 416, 501})
    CHECK_FALSE(is_worth_another_try(answered(status)));
  CHECK(is_worth_another_try(answered(409, "ConditionalRequestConflict")));
  CHECK(is_worth_another_try(answered(400, "RequestTimeout")));
  CHECK_FALSE(is_worth_another_try(answered(409, "BucketNotEmpty")));
  for (const fate f : {fate::unreachable, fate::lost, fate::broken})
    CHECK(is_worth_another_try({f, 0, {}, {}}));
  CHECK_FALSE(is_worth_another_try({fate::hopeless, 0, {}, {}}));
}

TEST_CASE("an attempt that may have taken effect makes what follows ambiguous") {
  retry_schedule schedule({}, 1, start);
  CHECK(schedule.next({fate::unreachable, 0, {}, {}}, start).has_value());
  CHECK(schedule.next(answered(429), start).has_value());
  CHECK_FALSE(schedule.is_ambiguous());
  CHECK(schedule.next({fate::lost, 0, {}, {}}, start).has_value());
  CHECK(schedule.is_ambiguous());
}

TEST_CASE("waits double up to the longest, half of each at random") {
  retry_options o;
  o.attempts_max = 100;
  o.first = 100ms;
  o.longest = 1000ms;
  o.budget = 1h;
  retry_schedule schedule(o, 7, start);
  auto whole = 100ms;
  std::set<std::int64_t> different;
  for (int i = 0; i < 20; ++i) {
    const auto wait = schedule.next(answered(503), start);
    REQUIRE(wait.has_value());
    CHECK(*wait >= whole / 2);
    CHECK(*wait <= whole);
    different.insert(wait->count());
    whole = std::min(whole * 2, 1000ms);
  }
  CHECK(different.size() > 5);
}

TEST_CASE("attempts and time are bounded") {
  retry_options o;
  o.attempts_max = 3;
  retry_schedule by_count(o, 1, start);
  CHECK(by_count.next(answered(503), start).has_value());
  CHECK(by_count.next(answered(503), start).has_value());
  CHECK_FALSE(by_count.next(answered(503), start).has_value());
  CHECK(by_count.attempts() == 3);
  o.budget = 10s;
  retry_schedule by_time(o, 1, start);
  CHECK_FALSE(by_time.next(answered(503), start + 10s).has_value());
}

TEST_CASE("the service's wish for a later try is heeded up to the longest wait") {
  retry_options o;
  o.first = 10ms;
  o.longest = 5s;
  retry_schedule schedule(o, 1, start);
  auto a = answered(429);
  a.retry_after = 3s;
  CHECK(schedule.next(a, start) == 3s);
  a.retry_after = 1h;
  CHECK(schedule.next(a, start) == 5s);
}

// ---- credentials

TEST_CASE("a profile is read from the usual file, with comments and other profiles around it") {
  const auto who = parse_profile(
      "# mine\r\n[other]\naws_access_key_id = X\n\n[ default ]\naws_access_key_id=AKID\r\n"
      "aws_secret_access_key =  a/b+c==\nregion = here\n; end\naws_session_token = t\n[more]\n",
      "default", "file");
  REQUIRE(who.has_value());
  CHECK(who->access_key == "AKID");
  CHECK(who->secret_key.reveal() == "a/b+c==");
  CHECK(who->session_token.reveal() == "t");
}

TEST_CASE("errors about a credentials file name the line and quote nothing of it") {
  const auto slipped = parse_profile("[default]\naws_access_key_id = AKID\nhushhush\n", "default", "f.ini");
  REQUIRE_FALSE(slipped.has_value());
  CHECK(contains(slipped.failure().message, "f.ini:3"));
  CHECK_FALSE(contains(slipped.failure().message, "hush"));
  const auto missing = parse_profile("[default]\naws_access_key_id = AKID\n", "default", "f.ini");
  REQUIRE_FALSE(missing.has_value());
  CHECK(contains(missing.failure().message, "aws_secret_access_key"));
  const auto broken = parse_profile("[default]\naws_access_key_id = A\naws_secret_access_key = hush hush\n",
                                    "default", "f.ini");
  REQUIRE_FALSE(broken.has_value());
  CHECK_FALSE(contains(broken.failure().message, "hush"));
  CHECK(parse_profile("[a]\n", "default", "f.ini").failure().code == errc::not_found);
}

TEST_CASE("a credentials file is read anew for each request, and one that is too large is refused") {
  const temporary_folder folder;
  const auto file = folder.path() / "credentials";
  const auto source = make_source(file.string(), "p");
  CHECK(source().failure().code == errc::not_found);
  write_file(file, "[p]\naws_access_key_id = one\naws_secret_access_key = s\n");
  CHECK(source()->access_key == "one");
  write_file(file, "[p]\naws_access_key_id = two\naws_secret_access_key = s\n");
  CHECK(source()->access_key == "two");
  write_file(file, std::string(credentials_bytes_max + 1, '#'));
  CHECK(source().failure().code == errc::exhausted);
}

TEST_CASE("without a file the environment counts, and its lack is said with what to do") {
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})
    ::unsetenv(name);
  const auto source = make_source("", "default");
  CHECK(contains(source().failure().message, "credentials_file"));
  ::setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
  CHECK(contains(source().failure().message, "AWS_SECRET_ACCESS_KEY"));
  ::setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
  CHECK(source()->access_key == "AKID");
  ::unsetenv("AWS_ACCESS_KEY_ID");
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
}

// ---- settings

TEST_CASE("the bucket goes into the path or into the host's name") {
  s3_options o;
  o.endpoint = "https://s3.example.com:8443";
  o.bucket = "data";
  o.prefix = "a/b";
  CHECK(resolve(o)->host == "s3.example.com:8443");
  CHECK(resolve(o)->path_root == "/data/");
  CHECK(resolve(o)->key_root == "a/b/");
  o.is_path_style = false;
  o.endpoint = "https://s3.example.com:443";
  CHECK(resolve(o)->host == "data.s3.example.com");
  CHECK(resolve(o)->path_root == "/");
}

TEST_CASE("settings that cannot work are refused by name") {
  CHECK(setting_error([](auto&) {}).empty());
  const std::vector<std::pair<const char*, std::string>> endpoints{{"", "endpoint"},
                                                                   {"s3.example.com/x", "endpoint"},
                                                                   {"ftp://h", "endpoint"},
                                                                   {"https://u:p@h", "endpoint"},
                                                                   {"https://h/path", "endpoint"},
                                                                   {"https://h/?a", "endpoint"},
                                                                   {"http://s3.example.com", "plain_http"}};
  for (const auto& [endpoint, named] : endpoints)
    CHECK_MESSAGE(contains(setting_error([&](auto& o) { o.endpoint = endpoint; }), named), endpoint);
  CHECK(setting_error([](auto& o) { o.endpoint = "http://127.0.0.1:9000"; }).empty());
  CHECK(setting_error([](auto& o) { o.endpoint = "http://[::1]:9000"; }).empty());
  CHECK(contains(setting_error([](auto& o) { o.bucket = "a/b"; }), "bucket"));
  CHECK(contains(setting_error([](auto& o) { o.region = "a b"; }), "region"));
  CHECK(contains(setting_error([](auto& o) { o.prefix = "/a"; }), "prefix"));
  CHECK(contains(setting_error([](auto& o) { o.prefix = "a//b"; }), "prefix"));
  CHECK(contains(setting_error([](auto& o) { o.part_bytes = 1; }), "part_bytes"));
}

TEST_CASE("no upload has more parts than services take") {
  CHECK(part_size_for(100, part_bytes_default) == part_bytes_default);
  const std::uint64_t large = std::uint64_t{1} << 40;
  CHECK(large / part_size_for(large, part_bytes_default) < part_number_max);
  CHECK(part_size_for(large, part_bytes_default) % (std::uint64_t{1} << 20) == 0);
}

TEST_CASE("a tag is compared where it is a digest of the bytes, and nowhere else") {
  http_reply reply;
  reply.headers["etag"] = '"' + md5_of("abc").hex + '"';
  CHECK(compare_etag(reply, md5_of("abc").hex) == tag_match::equal);
  CHECK(compare_etag(reply, md5_of("abd").hex) == tag_match::different);
  reply.headers["x-amz-server-side-encryption"] = "aws:kms";
  CHECK(compare_etag(reply, md5_of("abd").hex) == tag_match::unknown);
  reply.headers = {{"etag", "\"opaque\""}};
  CHECK(compare_etag(reply, md5_of("abd").hex) == tag_match::unknown);
  CHECK(md5_of("").base64 == "1B2M2Y8AsgTpgAmY7PhCfg==");
}
