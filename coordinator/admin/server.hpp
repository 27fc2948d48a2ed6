// The admin protocol's server: one thread of its own that speaks Cap'n Proto RPC, over TLS where the cluster
// has certificates, on loopback alone where it has none. Whatever clients do - send nothing, garbage or too
// much, or never read - costs them their connection and the coordinator little.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/tls/identity.hpp"
#include "coordinator/admin/service.hpp"

namespace perdura::admin {

struct server_options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 7401;           // 0: any free one
  tls::identity_ptr tls;               // the coordinator's; only admins are let in
  std::uint32_t connections_max = 64;  // one more and the longest silent one without a pending call goes
  std::uint32_t open_calls_max = 32;   // of one client
  std::uint64_t message_bytes_max = 4u << 20;   // of one message, either way
  std::uint64_t unsent_bytes_max = 8u << 20;    // answers that wait for one client to read
  std::chrono::milliseconds unread_max{10000};  // an answer unread for this long ends the connection
  std::chrono::milliseconds login_max{10000};   // from connecting to a login
  std::chrono::milliseconds follow_max{30000};  // longest that an answer about events is held
  std::uint32_t events_per_page_max = 500;
};

struct server_counts {
  std::uint32_t connections{};  // now
  std::uint64_t accepted{};
  std::uint64_t cut_off{};  // for silence, for not reading, for more than the limits
};

class server {
 public:
  // `service` outlives the server. Errors: a host beyond loopback without TLS, a port in use.
  static result<std::unique_ptr<server>> start(admin_service& service, const server_options& options);
  ~server();  // ends all connections and joins the thread
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  std::uint16_t port() const;
  // Any thread: there may be new events. Wakes those who follow; cheap when nobody does.
  void events_grew();
  server_counts counts() const;

 private:
  struct state;
  explicit server(std::unique_ptr<state> s);
  std::unique_ptr<state> state_;
};

}  // namespace perdura::admin
