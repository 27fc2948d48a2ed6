#include "worker/fault.hpp"

#include <array>
#include <charconv>

namespace perdura::worker {

result<fault> fault::parse(const std::string& text) {
  static constexpr std::array names{"compute", "exchange", "gather", "vote", "verdict", "apply"};
  const error bad{errc::invalid_argument,
                  "a fault is kill:STEP:PHASE or stop:STEP:PHASE with a phase of compute, "
                  "exchange, gather, vote, verdict or apply, not '" +
                      text + "'"};
  const auto first = text.find(':');
  const auto second = text.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return bad;
  fault f;
  const auto action = text.substr(0, first);
  f.signal_ = action == "kill" ? SIGKILL : action == "stop" ? SIGSTOP : 0;
  const auto* end = text.data() + second;
  const auto [stopped, failed] = std::from_chars(text.data() + first + 1, end, f.step_.value);
  if (f.signal_ == 0 || failed != std::errc{} || stopped != end) return bad;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (text.substr(second + 1) == names[i]) {
      f.phase_ = static_cast<fault_phase>(i);
      return f;
    }
  return bad;
}

}  // namespace perdura::worker
