#include "coordinator/admin/tls_context.hpp"

namespace perdura::admin {

result<kj::Own<kj::TlsContext>> make_tls_context(const tls::identity& self) {
  try {
    const kj::TlsCertificate ca(kj::StringPtr(self.ca.c_str()));
    const kj::TlsKeypair pair{kj::TlsPrivateKey(kj::StringPtr(self.key.c_str())),
                              kj::TlsCertificate(kj::StringPtr(self.certificate.c_str()))};
    kj::TlsContext::Options options;
    options.useSystemTrustStore = false;
    options.verifyClients = true;
    options.trustedCertificates = kj::arrayPtr(&ca, 1);
    options.minVersion = kj::TlsVersion::TLS_1_2;
    options.defaultKeypair = pair;
    return kj::heap<kj::TlsContext>(options);
  } catch (const kj::Exception& e) {
    return error{errc::invalid_argument,
                 "cannot use " + self.certificate_file + " for the admin RPC: " + e.getDescription().cStr()};
  }
}

}  // namespace perdura::admin
