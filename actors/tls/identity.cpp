#include "actors/tls/identity.hpp"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "actors/tls/certificate.hpp"

namespace perdura::tls {
namespace {

namespace fs = std::filesystem;
constexpr std::uintmax_t pem_bytes_max = 1U << 16;

using store_ptr = std::unique_ptr<X509_STORE, freed_by<X509_STORE_free>>;
using store_context_ptr = std::unique_ptr<X509_STORE_CTX, freed_by<X509_STORE_CTX_free>>;

result<std::string> read_pem(const fs::path& file, role as) {
  std::error_code failed;
  if (!fs::is_regular_file(file, failed))
    return error{errc::not_found, file.string() + " is missing; `perdura pki issue " + to_string(as) +
                                      " --name NAME` makes it, with its key and ca.pem beside it"};
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (fs::file_size(file, failed) <= pem_bytes_max) text << in.rdbuf();
  if (!in || text.str().empty())
    return error{errc::io, "cannot read " + file.string() + ": check its permissions and that it is PEM"};
  return text.str();
}

result<void> check_private(const fs::path& file) {
  struct stat is {};
  if (::stat(file.c_str(), &is) == 0 && (is.st_mode & 077U) != 0)
    return error{errc::refused, file.string() + " can be read by others; chmod 600 " + file.string()};
  return {};
}

result<subject> verified(X509* certificate, X509* ca) {
  const auto found = subject_of(certificate);
  if (!found) return found;
  const store_ptr store(X509_STORE_new());
  const store_context_ptr context(X509_STORE_CTX_new());
  X509_STORE_add_cert(store.get(), ca);
  X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr);
  if (X509_verify_cert(context.get()) == 1) return found;
  const int why = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  std::string text =
      "the certificate of " + to_string(*found) + " is refused: " + X509_verify_cert_error_string(why);
  if (why == X509_V_ERR_CERT_HAS_EXPIRED)
    text += " (on " + time_text(X509_get0_notAfter(certificate)) + "); issue a new one";
  else if (why == X509_V_ERR_CERT_NOT_YET_VALID)
    text += " (from " + time_text(X509_get0_notBefore(certificate)) + " on); are the clocks right?";
  else
    text += "; it was issued by another cluster's CA";
  return error{errc::refused, text};
}

}  // namespace

result<subject> verify(const std::string& certificate, const std::string& ca) {
  const auto shown = read_certificate(certificate);
  if (!shown) return error{errc::refused, "what it shows is no certificate"};
  const auto issuer = read_certificate(ca);
  if (!issuer) return error{errc::corrupt, "the CA's certificate is none"};
  return verified(shown.get(), issuer.get());
}

result<identity_ptr> load_identity(const fs::path& folder, role as) {
  const auto name = std::string(to_string(as));
  auto id = std::make_shared<identity>();
  id->ca_file = (folder / "ca.pem").string();
  id->certificate_file = (folder / (name + ".pem")).string();
  id->key_file = (folder / (name + ".key")).string();
  for (const auto& [file, text] : {std::pair{&id->ca_file, &id->ca},
                                   {&id->certificate_file, &id->certificate},
                                   {&id->key_file, &id->key}}) {
    auto read = read_pem(*file, as);
    if (!read) return read.failure();
    *text = std::move(*read);
  }
  const auto ca = read_certificate(id->ca);
  if (!ca) return error{errc::corrupt, id->ca_file + " is no PEM certificate"};
  const auto certificate = read_certificate(id->certificate);
  if (!certificate) return error{errc::corrupt, id->certificate_file + " is no PEM certificate"};
  if (auto is_private = check_private(id->key_file); !is_private) return is_private.failure();
  const auto key = read_key(id->key);
  if (!key) return error{errc::corrupt, id->key_file + " is no PEM key without a passphrase"};
  const auto who = verified(certificate.get(), ca.get());
  if (!who) return error{who.failure().code, id->certificate_file + ": " + who.failure().message};
  if (who->as != as)
    return error{errc::refused,
                 id->certificate_file + " is the certificate of " + to_string(*who) + ", not of a " + name};
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return error{errc::corrupt, id->key_file + " is not the key of " + id->certificate_file};
  }
  id->self = *who;
  return identity_ptr(std::move(id));
}

result<identity_ptr> load_if_any(const std::string& folder, role as) {
  if (folder.empty()) return identity_ptr{};
  return load_identity(folder, as);
}

}  // namespace perdura::tls
