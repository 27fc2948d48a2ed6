#include "actors/runtime/bounded_middleman.hpp"

#include <bit>
#include <caf/io/basp_broker.hpp>
#include <caf/io/system_messages.hpp>
#include <caf/scoped_actor.hpp>
#include <cstring>
#include <string>

#include "actors/base/log.hpp"
#include "actors/runtime/system.hpp"
#include "actors/runtime/tls_connector.hpp"

namespace perdura::runtime {

namespace {

// payload_len: the second 4 bytes, in network order.
std::uint32_t announced_bytes(const std::vector<char>& header) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i < 8; ++i) value = (value << 8) | static_cast<unsigned char>(header[i]);
  return value;
}

class bounded_broker : public caf::io::basp_broker {
 public:
  using basp_broker::basp_broker;
  using basp_broker::consume;

  caf::invoke_message_result consume(caf::mailbox_element& element) override {
    const auto& content = element.content();
    if (content.match_elements<caf::io::new_data_msg>()) {
      const auto& data = content.get_as<caf::io::new_data_msg>(0);
      if (const char* flaw = flaw_of(data); flaw != nullptr) {
        refuse(data.handle, flaw);
        return caf::invoke_message_result::consumed;
      }
    }
    return basp_broker::consume(element);
  }

 private:
  const char* flaw_of(const caf::io::new_data_msg& data) const {
    const auto known = ctx.find(data.handle);
    const bool is_header = known == ctx.end() || known->second.cstate == caf::io::basp::await_header;
    if (!is_header || data.buf.size() != caf::io::basp::header_size) return nullptr;
    const bool greeted = known != ctx.end() && known->second.id;
    if (announced_bytes(data.buf) > (greeted ? message_bytes_max : handshake_bytes_max))
      return "it announced a message over the limit";
    // Everybody here speaks for himself: what one peer has for another we do not carry.
    if (data.buf[0] == static_cast<char>(caf::io::basp::message_type::routed_message))
      return "it wants a message passed on in another's name";
    return nullptr;
  }

  void refuse(caf::io::connection_handle handle, const char* flaw) {
    if (std::has_single_bit(++refused_))
      log::warn("a connection was closed: " + std::string(flaw) + " (" + std::to_string(refused_) +
                " so far)");
    connection_cleanup(handle, caf::sec::malformed_basp_message);
    close(handle);
  }

  std::uint64_t refused_ = 0;
};

}  // namespace

void bounded_middleman::start() {
  // The middleman makes the broker of this name only if there is none.
  named_broker<bounded_broker>(caf::atom("BASP"));
  middleman::start();
  const auto* config = dynamic_cast<const system_config*>(&system().config());
  if (config == nullptr || !config->identity()) return;
  const auto broker = named_broker<bounded_broker>(caf::atom("BASP"));
  connector_ = make_tls_connector(system(), *config->identity(), broker);
}

void bounded_middleman::stop() {
  if (connector_) {
    caf::scoped_actor self{system(), true};
    self->send_exit(connector_, caf::exit_reason::kill);
    self->wait_for(connector_);
    connector_ = nullptr;
  }
  middleman::stop();
}

}  // namespace perdura::runtime
