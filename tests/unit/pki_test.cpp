// `perdura pki` and what `perdura doctor` says of certificates.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "coordinator/console/doctor.hpp"
#include "coordinator/console/pki.hpp"
#include "tests/unit/certificates.hpp"

using namespace perdura;
using namespace perdura::console;
using tls::role;

namespace {

struct outcome {
  int code = 0;
  std::string out;
  std::string err;
};

outcome pki(std::vector<std::string> words) {
  CLI::App app;
  pki_options options;
  bool json = false;
  declare_pki(app, options, json);
  words.insert(words.begin(), "pki");
  std::reverse(words.begin(), words.end());
  outcome o;
  try {
    app.parse(words);
  } catch (const CLI::ParseError&) { return {exit_usage, {}, {}}; }
  std::ostringstream out, err;
  renderer view(out, err, {json, false});
  o.code = run_pki(options, view);
  o.out = out.str();
  o.err = err.str();
  return o;
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("a CA is made once, and replaced only by force") {
  const test::authority ca;
  const auto folder = (ca.folder() / "own").string();
  CHECK(pki({"init", folder}).code == exit_ok);
  const auto again = pki({"init", folder});
  CHECK(again.code == exit_failed);
  CHECK_MESSAGE(says(again.err, folder + "/ca.pem is there already"), again.err);
  CHECK(pki({"init", folder, "--force"}).code == exit_ok);
}

TEST_CASE("what is issued can be used, and is shown with its role, hosts and flaws") {
  const test::authority ca;
  const auto issued = pki({"issue", "worker", "--name", "gpu-1", "--ca", ca.folder().string(), "--host",
                           "192.0.2.3", "--host", "gpu-1.example.org"});
  CHECK_MESSAGE(issued.code == exit_ok, issued.err);
  CHECK(tls::load_identity(ca.machine("gpu-1"), role::worker).has_value());
  ca.expired(role::node);
  const auto shown = pki({"show", ca.folder().string()});
  CHECK(shown.code == exit_ok);
  CHECK_MESSAGE(says(shown.out, "worker gpu-1"), shown.out);
  CHECK(says(shown.out, "gpu-1.example.org"));
  CHECK(says(shown.out, "has expired"));
  CHECK(says(pki({"show", ca.folder().string(), "--json"}).out, "\"who\":\"worker gpu-1\""));
}

TEST_CASE("what cannot be issued says why, and leaves nothing") {
  const test::authority ca;
  const auto no_ca = pki({"issue", "node", "--name", "a", "--ca", (ca.folder() / "none").string()});
  CHECK(no_ca.code == exit_failed);
  CHECK_MESSAGE(says(no_ca.err, "perdura pki init"), no_ca.err);
  CHECK(pki({"issue", "node", "--name", "a/b", "--ca", ca.folder().string()}).code == exit_failed);
  CHECK(pki({"issue", "node", "--name", "a", "--days", "0", "--ca", ca.folder().string()}).code ==
        exit_usage);
  CHECK(pki({"issue", "king", "--name", "a", "--ca", ca.folder().string()}).code == exit_usage);
  CHECK(pki({"issue", "node", "--ca", ca.folder().string()}).code == exit_usage);
  CHECK_FALSE(std::filesystem::exists(ca.machine("a")));
}

TEST_CASE("the doctor checks all certificates of this machine") {
  const test::authority ca;
  CHECK(check_certificates("").is == health::ok);
  CHECK(check_certificates((ca.folder() / "none").string()).is == health::fail);
  ca.issue({.who = {role::node, "a"}, .hosts = {}});
  const auto fine = check_certificates(ca.machine("a").string());
  CHECK(fine.is == health::ok);
  CHECK(says(fine.found, "node a"));
  const auto worker = ca.issue({.who = {role::worker, "a"}, .hosts = {}});
  std::filesystem::permissions(worker.key, std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  const auto open = check_certificates(ca.machine("a").string());
  CHECK(open.is == health::fail);
  CHECK(says(open.found, "can be read by others"));
}
