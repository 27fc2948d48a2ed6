// The S3 tier against a service in memory, through a proxy that loses, spoils and delays.
#include "storage/s3/s3_store.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "tests/unit/captured_log.hpp"
#include "tests/unit/fake_s3.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;
using namespace perdura::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::string some_text(std::size_t size, std::uint32_t seed) {
  const auto bytes = some_bytes(size, seed);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

web_reply refusal(int status, const std::string& code,
                  std::vector<std::pair<std::string, std::string>> headers = {}) {
  return {status, "<Error><Code>" + code + "</Code><Message>no</Message></Error>", std::move(headers)};
}

// The first `times` requests whose "METHOD target" begins so are answered by `instead`.
fault_proxy::before_hook first_times(int times, const std::string& beginning, web_reply instead) {
  auto left = std::make_shared<std::atomic<int>>(times);
  return [=](const web_request& r) -> std::optional<web_reply> {
    if (!(r.method + " " + r.target).starts_with(beginning) || left->fetch_sub(1) <= 0) return std::nullopt;
    return instead;
  };
}

// The first answers to such requests, which have taken effect, are lost.
fault_proxy::after_hook lost_answers(int times, const std::string& method, const std::string& part = "") {
  auto left = std::make_shared<std::atomic<int>>(times);
  return [=](const web_request& r, web_reply& reply) {
    if (r.method == method && contains(r.target, part) && left->fetch_sub(1) > 0) reply.is_dropped = true;
  };
}

struct rig {
  fake_s3 service;
  fault_proxy proxy{service.port()};
  temporary_folder folder;

  std::unique_ptr<s3::s3_store> store() { return store_at(options_at(proxy.url())); }
  std::filesystem::path file_of(const std::string& bytes) {
    write_file(folder.path() / "file", bytes);
    return folder.path() / "file";
  }
  std::string object(const std::string& name) { return service.objects()["runs/a/" + name]; }
};

}  // namespace

TEST_CASE("an object is put once, read, looked at, and removed any number of times") {
  rig r;
  const auto store = r.store();
  CHECK(store->get("manifests/j/1.json").failure().code == errc::not_found);
  CHECK(store->size("manifests/j/1.json").value() == std::nullopt);
  store->put_if_absent("manifests/j/1.json", "hello").value();
  CHECK(store->put_if_absent("manifests/j/1.json", "other").failure().code == errc::already_exists);
  CHECK(store->get("manifests/j/1.json").value() == "hello");
  CHECK(store->size("manifests/j/1.json").value() == 5U);
  CHECK(r.object("manifests/j/1.json") == "hello");
  std::array<std::byte, 3> part{};
  store->get_range("manifests/j/1.json", 1, part).value();
  CHECK(std::memcmp(part.data(), "ell", 3) == 0);
  CHECK_FALSE(store->get_range("manifests/j/1.json", 4, part).has_value());
  store->remove("manifests/j/1.json").value();
  store->remove("manifests/j/1.json").value();
  CHECK(r.service.objects().empty());
}

TEST_CASE("a list goes over its pages, and leaves out what no store has named") {
  rig r;
  const auto store = r.store();
  r.service.page = 2;
  for (const auto* key : {"packs/b", "packs/a", "packs/c", "packs/d", "packs/a b+c", "packs/.x", "packsy/e"})
    r.service.put(std::string("runs/a/") + key, "12");
  r.service.put("runs/b/packs/f", "");
  const auto names = store->list("packs").value();
  CHECK(names == std::vector<object_entry>{{"packs/a", 2}, {"packs/b", 2}, {"packs/c", 2}, {"packs/d", 2}});
  CHECK(store->list("manifests").value().empty());
  CHECK(r.proxy.count("GET /bucket/?") == 4);
}

TEST_CASE("names that could leave the prefix are refused before anything is sent") {
  rig r;
  const auto store = r.store();
  for (const auto* name : {"../a", "a/../b", "/a", "a//b", "", "a/b/c/d", "a b", ".a"})
    CHECK(store->put_if_absent(name, "x").failure().code == errc::invalid_argument);
  CHECK(r.proxy.log().empty());
}

TEST_CASE("a service that is overloaded is asked again") {
  rig r;
  const auto store = r.store();
  r.proxy.set(first_times(2, "PUT", refusal(503, "SlowDown")));
  store->put_if_absent("a", "1").value();
  r.proxy.set(first_times(2, "GET", refusal(429, "TooManyRequests", {{"Retry-After", "0"}})));
  CHECK(store->get("a").value() == "1");
  r.proxy.set(first_times(1, "GET", {500, "<html>no XML</html>"}));
  CHECK(store->get("a").value() == "1");
  CHECK(r.proxy.count("PUT") == 3);
  CHECK(r.proxy.count("GET") == 5);
}

TEST_CASE("a service that stays overloaded is given up after so many attempts, with its words") {
  rig r;
  auto options = options_at(r.proxy.url());
  options.retry.attempts_max = 3;
  const auto store = store_at(options);
  r.proxy.set(first_times(100, "GET", refusal(503, "SlowDown", {{"x-amz-request-id", "R-1"}})));
  const auto failed = store->get("a").failure();
  CHECK(failed.code == errc::unavailable);
  CHECK(contains(failed.message, "503 SlowDown: no"));
  CHECK(contains(failed.message, "R-1"));
  CHECK(r.proxy.count("GET") == 3);
}

TEST_CASE("a put whose acknowledgement is lost counts as done if the bytes are there") {
  rig r;
  const auto store = r.store();
  for (const bool gives_md5_tags : {true, false}) {
    r.service.gives_md5_tags = gives_md5_tags;
    const std::string name = gives_md5_tags ? "a" : "b";
    r.proxy.set({}, lost_answers(1, "PUT"));
    store->put_if_absent(name, "mine").value();
    CHECK(r.object(name) == "mine");
  }
  CHECK(r.proxy.count("PUT") == 4);
}

TEST_CASE("a put whose answer is lost, and that another writer won, has lost") {
  rig r;
  const auto store = r.store();
  r.service.put("runs/a/a", "theirs");
  r.proxy.set({}, lost_answers(1, "PUT"));
  CHECK(store->put_if_absent("a", "mine!!").failure().code == errc::already_exists);
  CHECK(r.object("a") == "theirs");
}

TEST_CASE("a put that is refused at once does not ask whether the same bytes are there") {
  rig r;
  const auto store = r.store();
  r.service.put("runs/a/a", "same");
  CHECK(store->put_if_absent("a", "same").failure().code == errc::already_exists);
}

TEST_CASE("a service without conditional puts is named, and can be used with the setting for it") {
  rig r;
  r.service.knows_conditions = false;
  const auto failed = r.store()->put_if_absent("a", "1").failure();
  CHECK(failed.code == errc::refused);
  CHECK(contains(failed.message, "conditional_puts = false"));
  auto options = options_at(r.proxy.url());
  options.has_conditional_puts = false;
  const auto store = store_at(options);
  store->put_if_absent("a", "1").value();
  CHECK(store->put_if_absent("a", "2").failure().code == errc::already_exists);
  CHECK(r.object("a") == "1");
}

TEST_CASE("an answer that is cut short is asked for again") {
  rig r;
  const auto store = r.store();
  store->put_if_absent("a", "0123456789").value();
  auto left = std::make_shared<std::atomic<int>>(2);
  r.proxy.set({}, [left](const web_request& q, web_reply& reply) {
    if (q.method == "GET" && left->fetch_sub(1) > 0) reply.cut_after = 4;
  });
  CHECK(store->get("a").value() == "0123456789");
  left->store(1);
  std::array<std::byte, 8> part{};
  store->get_range("a", 2, part).value();
  CHECK(std::memcmp(part.data(), "23456789", 8) == 0);
  CHECK(r.proxy.count("GET") == 5);
}

TEST_CASE("a range that is not the one asked for is not taken for it") {
  rig r;
  auto options = options_at(r.proxy.url());
  options.retry.attempts_max = 2;
  const auto store = store_at(options);
  store->put_if_absent("a", "0123456789").value();
  std::array<std::byte, 4> part{};
  const auto spoil = [&](const std::function<void(web_reply&)>& how) {
    r.proxy.set({}, [how](const web_request&, web_reply& reply) { how(reply); });
    return !store->get_range("a", 2, part).has_value();
  };
  const auto set = [](web_reply& reply, const std::string& name, const std::string& value) {
    for (auto& header : reply.headers)
      if (header.first == name) header.second = value;
  };
  CHECK(spoil([&](web_reply& reply) { set(reply, "Content-Range", "bytes 0-3/10"); }));
  CHECK(spoil([&](web_reply& reply) { set(reply, "Content-Range", ""); }));
  CHECK(spoil([&](web_reply& reply) {
    reply.status = 200;
    reply.body = "0123456789";
    set(reply, "Content-Length", "10");
  }));
  CHECK_FALSE(spoil([](web_reply&) {}));
}

TEST_CASE("bytes that drip are given up and asked for again") {
  rig r;
  const auto store = r.store();
  store->put_if_absent("a", std::string(100, 'x')).value();
  auto left = std::make_shared<std::atomic<int>>(1);
  r.proxy.set({}, [left](const web_request& q, web_reply& reply) {
    if (q.method == "GET" && left->fetch_sub(1) > 0) reply.pause_between = 200ms;
  });
  CHECK(store->get("a").value() == std::string(100, 'x'));
  CHECK(r.proxy.count("GET") == 2);
}

TEST_CASE("no answer is read beyond its limit") {
  rig r;
  const auto store = r.store();
  web_reply endless{200, std::string(mebibyte, '<')};
  endless.is_endless = true;
  r.proxy.set(first_times(1, "GET", endless));
  CHECK(contains(store->list("packs").failure().message, "longer than 4194304 bytes"));
  std::array<std::byte, 8> part{};
  r.proxy.set(first_times(1, "GET", endless));
  CHECK(contains(store->get_range("a", 0, part).failure().message, "longer than the 8 bytes"));
  endless.status = 403;
  r.proxy.set(first_times(1, "GET", endless));
  CHECK(contains(store->get("a").failure().message, "status 403"));
  CHECK(r.proxy.count("GET") == 3);
}

TEST_CASE("a redirection is not followed, but said where to") {
  rig r;
  const auto store = r.store();
  std::atomic<int> elsewhere_asked{0};
  web_server elsewhere([&](const web_request&) {
    ++elsewhere_asked;
    return web_reply{};
  });
  r.proxy.set(first_times(
      100, "GET",
      refusal(301, "PermanentRedirect",
              {{"Location", elsewhere.url() + "/bucket/a"}, {"x-amz-bucket-region", "eu-west-9"}})));
  const auto failed = store->get("a").failure();
  CHECK(contains(failed.message, "eu-west-9"));
  CHECK(elsewhere_asked == 0);
}

TEST_CASE("a missing bucket and wrong keys are told from a missing object") {
  rig r;
  auto options = options_at(r.proxy.url());
  options.bucket = "nobucket";
  const auto missing = store_at(options)->get("a").failure();
  CHECK(missing.code == errc::refused);
  CHECK(contains(missing.message, "create the bucket"));
  options = options_at(r.proxy.url());
  options.who = [] { return result<s3::credentials>({"AKIDFAKE", s3::secret("wrong"), {}}); };
  const auto denied = store_at(options)->get("a").failure();
  CHECK(denied.code == errc::refused);
  CHECK(contains(denied.message, "SignatureDoesNotMatch"));
  CHECK(contains(denied.message, "check the secret key"));
}

TEST_CASE("a clock that is off is set by the service's") {
  rig r;
  const auto store = r.store();
  r.service.put("runs/a/a", "1");
  std::string date;
  r.proxy.set(
      [&, first = first_times(
              1, "GET", refusal(403, "RequestTimeTooSkewed", {{"Date", "Tue, 01 Jan 2030 00:00:00 GMT"}}))](
          const web_request& q) {
        date = q.header("x-amz-date");
        return first(q);
      });
  CHECK(store->get("a").value() == "1");
  CHECK(date.starts_with("20300101T0000"));
}

TEST_CASE("no error and no line of the log holds a secret") {
  captured_log log;
  rig r;
  auto options = options_at(r.proxy.url());
  options.retry.attempts_max = 2;
  const auto store = store_at(options);
  const std::string said = std::string("you sent ") + fake_s3::secret_key + " and " + fake_s3::token;
  std::vector<std::string> texts;
  for (const int status : {301, 400, 403, 404, 409, 412, 429, 500, 501, 503}) {
    r.proxy.set([&](const web_request&) {
      return std::optional(web_reply{status, "<Error><Code>C</Code><Message>" + said + "</Message></Error>"});
    });
    texts.push_back(store->get("a").failure().message);
    texts.push_back(store->put_if_absent("a", "1").failure().message);
    texts.push_back(
        store->put_file("a", r.file_of(std::string(6 * mebibyte, 'x')), put_mode::replace).failure().message);
    texts.push_back(store->remove("a").has_value() ? "" : store->remove("a").failure().message);
    texts.push_back(store->list("a").failure().message);
  }
  r.proxy.set([](const web_request&) {
    web_reply dropped;
    dropped.is_dropped = true;
    return std::optional(dropped);
  });
  texts.push_back(store->get("a").failure().message);
  texts.push_back(store->where());
  texts.push_back(log.text());
  for (const auto& text : texts) {
    CHECK_FALSE(contains(text, fake_s3::secret_key));
    CHECK_FALSE(contains(text, fake_s3::token));
  }
}

TEST_CASE("a service that nobody answers for is unavailable, and cancelling ends the wait") {
  auto options = options_at("http://127.0.0.1:1");
  options.retry.attempts_max = 2;
  const auto failed = store_at(options)->get("a").failure();
  CHECK(failed.code == errc::unavailable);
  CHECK(contains(failed.message, "2 attempts"));
  options.retry.attempts_max = 1000;
  options.retry.first = options.retry.longest = 1h;
  options.retry.budget = 100h;
  const auto store = store_at(options);
  std::thread canceller([&] { store->cancel(); });
  CHECK_FALSE(store->get("a").has_value());
  canceller.join();
}

// ---- files

TEST_CASE("a file of one part is put whole, and replaces only where it may") {
  rig r;
  const auto store = r.store();
  store->put_file("packs/a", r.file_of("one"), put_mode::if_absent).value();
  CHECK(store->put_file("packs/a", r.file_of("two"), put_mode::if_absent).failure().code ==
        errc::already_exists);
  CHECK(r.object("packs/a") == "one");
  store->put_file("packs/a", r.file_of("two"), put_mode::replace).value();
  CHECK(r.object("packs/a") == "two");
  CHECK(store->put_file("packs/b", r.folder.path() / "none", put_mode::replace).failure().code ==
        errc::not_found);
  store->put_file("packs/empty", r.file_of(""), put_mode::if_absent).value();
  CHECK(store->size("packs/empty").value() == 0U);
}

TEST_CASE("a larger file goes in parts") {
  rig r;
  const auto store = r.store();
  const auto bytes = some_text(11 * mebibyte, 1);
  store->put_file("packs/a", r.file_of(bytes), put_mode::if_absent).value();
  CHECK(r.object("packs/a") == bytes);
  CHECK(r.proxy.count("PUT /bucket/runs/a/packs/a?partNumber") == 3);
  CHECK(r.service.open_uploads() == 0);
  CHECK(store->put_file("packs/a", r.file_of(bytes), put_mode::if_absent).failure().code ==
        errc::already_exists);
}

TEST_CASE("an upload that ended in the middle goes on where it was, and parts that are wrong are sent anew") {
  rig r;
  auto options = options_at(r.proxy.url());
  options.retry.attempts_max = 2;
  const auto store = store_at(options);
  r.service.page = 1;
  const auto bytes = some_text(17 * mebibyte, 2);
  r.proxy.set(first_times(100, "PUT /bucket/runs/a/packs/a?partNumber=3", refusal(503, "SlowDown")));
  CHECK(store->put_file("packs/a", r.file_of(bytes), put_mode::if_absent).failure().code ==
        errc::unavailable);
  CHECK(r.service.open_uploads() == 1);
  r.service.spoil_part(2);
  r.proxy.set({});
  const auto before = r.proxy.count("PUT");
  store->put_file("packs/a", r.file_of(bytes), put_mode::if_absent).value();
  CHECK(r.object("packs/a") == bytes);
  CHECK(r.proxy.count("PUT") - before == 3);  // parts 2, 3 and 4
  CHECK(r.service.open_uploads() == 0);
}

TEST_CASE("an upload that is removed under its writer begins anew") {
  rig r;
  const auto store = r.store();
  const auto bytes = some_text(11 * mebibyte, 3);
  bool was_forgotten = false;
  r.proxy.set([&](const web_request& q) -> std::optional<web_reply> {
    if (contains(q.target, "partNumber=2") && !std::exchange(was_forgotten, true)) r.service.forget_uploads();
    return std::nullopt;
  });
  store->put_file("packs/a", r.file_of(bytes), put_mode::if_absent).value();
  CHECK(r.object("packs/a") == bytes);
}

TEST_CASE("lost answers anywhere in an upload in parts do no harm, and leave nothing behind") {
  for (const auto& [method, part] : std::vector<std::pair<std::string, std::string>>{
           {"POST", "uploads="}, {"PUT", "partNumber=2"}, {"POST", "uploadId="}, {"GET", "uploads="}}) {
    rig r;
    const auto store = r.store();
    const auto bytes = some_text(6 * mebibyte, 4);
    r.proxy.set({}, lost_answers(1, method, part));
    CAPTURE(method + " " + part);
    store->put_file("packs/a", r.file_of(bytes), put_mode::if_absent).value();
    CHECK(r.object("packs/a") == bytes);
    CHECK(r.service.open_uploads() == 0);
  }
}

TEST_CASE("a completion that says Error with status 200 is asked for again") {
  rig r;
  const auto store = r.store();
  const auto bytes = some_text(6 * mebibyte, 5);
  r.proxy.set(first_times(1, "POST /bucket/runs/a/packs/a?uploadId", refusal(200, "InternalError")));
  store->put_file("packs/a", r.file_of(bytes), put_mode::if_absent).value();
  CHECK(r.object("packs/a") == bytes);
}

TEST_CASE("a completion that loses to another writer leaves that one's object and no parts") {
  rig r;
  const auto store = r.store();
  r.proxy.set([&](const web_request& q) -> std::optional<web_reply> {
    if (contains(q.target, "partNumber=2")) r.service.put("runs/a/packs/a", "theirs");
    return std::nullopt;
  });
  const auto failed = store->put_file("packs/a", r.file_of(some_text(6 * mebibyte, 6)), put_mode::if_absent);
  CHECK(failed.failure().code == errc::already_exists);
  CHECK(r.object("packs/a") == "theirs");
  CHECK(r.service.open_uploads() == 0);
}

TEST_CASE("what a service put together wrongly is found") {
  rig r;
  const auto store = r.store();
  r.proxy.set({}, [&](const web_request& q, web_reply&) {
    if (q.method == "POST" && contains(q.target, "uploadId=")) r.service.put("runs/a/packs/a", "short");
  });
  const auto failed = store->put_file("packs/a", r.file_of(some_text(6 * mebibyte, 7)), put_mode::replace);
  CHECK(failed.failure().code == errc::corrupt);
}
