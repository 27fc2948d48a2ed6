#include "actors/runtime/bounded_middleman.hpp"

#include <bit>
#include <caf/io/basp_broker.hpp>
#include <caf/io/system_messages.hpp>
#include <chrono>
#include <cstring>
#include <map>
#include <string>

#include <openssl/err.h>
#include <openssl/sslerr.h>

#include "actors/base/log.hpp"

namespace perdura::runtime {

namespace {

constexpr unsigned refusal_lines_per_second_max = 10;
constexpr std::size_t callers_max = 16384;

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
    } else if (content.match_elements<caf::io::new_connection_msg>()) {
      const auto handle = content.get_as<caf::io::new_connection_msg>(0).handle;
      if (callers_.size() == callers_max) callers_.erase(callers_.begin());
      callers_[handle] = {remote_addr(handle) + ":" + std::to_string(remote_port(handle)), clock::now()};
    } else if (content.match_elements<caf::io::connection_closed_msg>()) {
      tell_refused(content.get_as<caf::io::connection_closed_msg>(0).handle);
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
    callers_.erase(handle);
    connection_cleanup(handle, caf::sec::malformed_basp_message);
    close(handle);
  }

  // CAF leaves OpenSSL's errors where they are: there is the reason, and if they stayed the next connection
  // that waits for bytes would be taken for broken, too.
  void tell_refused(caf::io::connection_handle handle) {
    const auto code = ERR_peek_last_error();
    ERR_clear_error();
    const auto found = callers_.find(handle);
    if (found == callers_.end() || !system().has_openssl_manager()) return;
    const auto caller = found->second;
    callers_.erase(found);
    const auto known = ctx.find(handle);
    if (known != ctx.end() && known->second.id) return;  // it had introduced itself
    const bool has_hung_up = code == 0 || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    // A probe, as ours before each connection, is gone at once.
    if (has_hung_up && clock::now() - caller.since < std::chrono::seconds(1)) return;
    const char* reason = ERR_reason_error_string(code);
    const std::string why = has_hung_up         ? "it said nothing; a client without TLS?"
                            : reason == nullptr ? "unknown reason"
                                                : reason;
    note("refused a connection from " + caller.from + ": no TLS handshake: " + why);
  }

  void note(const std::string& line) {
    const auto now = clock::now();
    if (now - lines_since_ > std::chrono::seconds(1)) {
      lines_since_ = now;
      lines_ = 0;
    }
    if (++lines_ <= refusal_lines_per_second_max) log::warn(line);
  }

  using clock = std::chrono::steady_clock;
  struct caller {
    std::string from;
    clock::time_point since;
  };

  std::map<caf::io::connection_handle, caller> callers_;  // who connected to us, for people
  clock::time_point lines_since_;
  unsigned lines_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace

void bounded_middleman::start() {
  // The middleman makes the broker of this name only if there is none.
  named_broker<bounded_broker>(caf::atom("BASP"));
  middleman::start();
}

}  // namespace perdura::runtime
