#include "actors/runtime/bounded_middleman.hpp"

#include <bit>
#include <caf/io/basp_broker.hpp>
#include <caf/io/system_messages.hpp>
#include <cstring>

#include "actors/base/log.hpp"

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
    if (element.content().match_elements<caf::io::new_data_msg>()) {
      const auto& data = element.content().get_as<caf::io::new_data_msg>(0);
      if (is_too_large(data)) {
        refuse(data.handle);
        return caf::invoke_message_result::consumed;
      }
    }
    return basp_broker::consume(element);
  }

 private:
  bool is_too_large(const caf::io::new_data_msg& data) const {
    const auto known = ctx.find(data.handle);
    const bool is_header = known == ctx.end() || known->second.cstate == caf::io::basp::await_header;
    if (!is_header || data.buf.size() != caf::io::basp::header_size) return false;
    const bool greeted = known != ctx.end() && known->second.id;
    return announced_bytes(data.buf) > (greeted ? message_bytes_max : handshake_bytes_max);
  }

  void refuse(caf::io::connection_handle handle) {
    if (std::has_single_bit(++refused_))
      log::warn("a connection was closed: it announced a message over the limit (" +
                std::to_string(refused_) + " so far)");
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
}

}  // namespace perdura::runtime
