#include "coordinator/console/pki.hpp"

#include "actors/tls/authority.hpp"

namespace perdura::console {

namespace {

namespace fs = std::filesystem;

value text(const std::string& s) { return value(boost::json::string(s)); }

void add_force(CLI::App* app, pki_options& options) {
  app->add_flag("--force", options.force, "replace files that are there");
}

result<void> init(const pki_options& options, renderer& view) {
  const auto made = tls::make_authority(options.folder, options.force);
  if (!made) return made.failure();
  view.show(record{{{{"certificate", "CA certificate"}, text(made->certificate.string())},
                    {{"key", "CA key"}, text(made->key.string())}}});
  view.say("keep the key off the cluster's machines: whoever has it can be anybody");
  return {};
}

result<void> issue(const pki_options& options, renderer& view) {
  const auto as = tls::parse_role(options.role);
  if (!as) return as.failure();
  tls::issue_options wanted;
  wanted.who = {*as, options.name};
  wanted.hosts = options.hosts;
  wanted.lasts = std::chrono::hours(24) * options.days + tls::clocks_differ;
  if (auto fine = tls::check_name(options.name); !fine) return fine;
  const auto out = options.out.empty() ? fs::path(options.folder) / options.name : fs::path(options.out);
  const auto made = tls::issue(options.folder, wanted, out, options.force);
  if (!made) return made.failure();
  view.show(record{{{{"certificate", "certificate"}, text(made->certificate.string())},
                    {{"key", "key"}, text(made->key.string())},
                    {{"tls_folder", "folder"}, text(out.string())}}});
  view.say("copy the folder to that machine and set tls_folder to it");
  return {};
}

result<void> show(const pki_options& options, renderer& view) {
  const auto all = tls::list_certificates(options.folder);
  if (!all) return all.failure();
  table t;
  t.columns = {{"file", "FILE"},
               {"who", "WHO"},
               {"hosts", "HOSTS"},
               {"begins_unix_ms", "FROM", unit::date},
               {"ends_unix_ms", "UNTIL", unit::date},
               {"flaw", "FLAW"}};
  t.when_empty = "no certificates";
  for (const auto& c : *all) {
    boost::json::array hosts;
    for (const auto& host : c.hosts) hosts.emplace_back(host);
    t.rows.push_back(
        {text(c.file.string()), text(c.who), hosts, c.begins_unix_ms, c.ends_unix_ms, text(c.flaw)});
  }
  view.show(t);
  return {};
}

}  // namespace

CLI::App* declare_pki(CLI::App& app, pki_options& options, bool& json) {
  auto* pki = app.add_subcommand("pki", "the cluster's certificates, which TLS beyond loopback needs");
  pki->require_subcommand(1);
  const auto folder = [&](CLI::App* of, const char* name) {
    of->add_option(name, options.folder, "the CA's folder")->type_name("FOLDER")->capture_default_str();
    of->add_flag("--json", json, "JSON instead of text");
  };
  auto* init = pki->add_subcommand("init", "make a CA: ca.pem and ca.key");
  folder(init, "FOLDER");
  add_force(init, options);
  options.init = init;
  auto* issue = pki->add_subcommand("issue", "make a certificate: ROLE.pem, ROLE.key and ca.pem beside them");
  issue->add_option("ROLE", options.role, "coordinator, node, worker, gateway or admin")
      ->required()
      ->check(CLI::IsMember({"coordinator", "node", "worker", "gateway", "admin"}));
  issue->add_option("--name", options.name, "of the machine or the person")->required();
  issue->add_option("--host", options.hosts, "its DNS names and addresses, for other tools; any number")
      ->type_name("DNS-or-IP");
  issue->add_option("--days", options.days, "how long it is good")
      ->check(CLI::Range(1U, 3650U).description("1 to 3650"))
      ->capture_default_str();
  folder(issue, "--ca");
  issue->add_option("--out", options.out, "where to put it; default: NAME in the CA's folder")
      ->type_name("FOLDER");
  add_force(issue, options);
  options.issue = issue;
  auto* show = pki->add_subcommand("show", "what is there, until when, and what is wrong with it");
  folder(show, "FOLDER");
  return pki;
}

exit_code run_pki(const pki_options& options, renderer& view) {
  const auto done = options.init->parsed()    ? init(options, view)
                    : options.issue->parsed() ? issue(options, view)
                                              : show(options, view);
  if (done) return exit_ok;
  view.fail(done.failure());
  return exit_failed;
}

}  // namespace perdura::console
