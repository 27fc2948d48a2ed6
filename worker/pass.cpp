#include "worker/pass.hpp"

#include <algorithm>

namespace perdura::worker {

pass::pass(lane& on, trainer& numbers, resident_parameters& resident, step_number step, bool gathers,
           const std::atomic<bool>& stopped, events tell, std::shared_ptr<spans> trace)
    : lane_(on),
      numbers_(numbers),
      resident_(resident),
      step_(step),
      gathers_(gathers),
      stopped_(stopped),
      tell_(std::move(tell)),
      trace_(std::move(trace)) {
  const auto& tiles = numbers_.tiles();
  for (std::uint32_t t = 0; t < tiles.size(); ++t) {
    if (stages_.size() <= tiles[t].stage) stages_.resize(tiles[t].stage + 1);
    stages_[tiles[t].stage].push_back(tile_id(t));
  }
  const auto count = static_cast<std::uint32_t>(stages_.size());
  for (std::uint32_t s = 0; s < count; ++s) order_.push_back(s);
  for (std::uint32_t s = count - 1; s-- > 0;) order_.push_back(s);
  asked_.resize(count);
  asking_.resize(count, false);
  if (!gathers_) return;
  resident_.is_wanted = [this](tile_id t) { return is_near(numbers_.tiles()[t.value].stage); };
  resident_.arrived = [this](tile_id t) { trace_gathered(numbers_.tiles()[t.value].stage); };
}

pass::~pass() {
  if (!gathers_) return;
  resident_.is_wanted = [](tile_id) { return false; };
  resident_.arrived = [](tile_id) {};
  for (std::uint32_t s = 0; s < stages_.size(); ++s) {
    at_ = order_.size();
    release(s);
  }
}

void pass::trace_gathered(std::uint32_t stage) {
  if (!trace_ || !asking_[stage] || !is_here(stage)) return;
  trace_->add(spans::track::gather, "gather " + std::to_string(stage), step_.value, asked_[stage],
              spans::now());
}

// Acquired or next.
bool pass::is_near(std::uint32_t stage) const {
  const auto first = at_ == 0 ? 0 : at_ - 1;
  for (std::size_t i = first; i < std::min(order_.size(), at_ + 1); ++i)
    if (order_[i] == stage) return true;
  return false;
}

bool pass::is_here(std::uint32_t stage) const {
  return std::all_of(stages_[stage].begin(), stages_[stage].end(),
                     [&](tile_id t) { return resident_.has(t, step_ - 1); });
}

void pass::ask_for(std::uint32_t stage) {
  if (asking_[stage] || is_here(stage)) return;
  asking_[stage] = true;
  asked_[stage] = spans::now();
  for (const auto t : stages_[stage])
    if (!resident_.has(t, step_ - 1)) tell_.wanted(t);
}

bool pass::acquire(std::uint32_t stage) {
  const auto begin = spans::now();
  if (gathers_) {
    while (at_ < order_.size() && order_[at_] != stage) ++at_;
    ++at_;
    ask_for(stage);
    if (at_ < order_.size()) ask_for(order_[at_]);
    while (!is_here(stage)) {
      if (stopped_) return false;
      lane_.wait_for_state();
    }
    asking_[stage] = false;
  }
  acquired_ = spans::now();
  if (trace_ && gathers_)
    trace_->add(spans::track::lane, "wait " + std::to_string(stage), step_.value, begin, acquired_);
  return !stopped_;
}

void pass::release(std::uint32_t stage) {
  if (trace_ && at_ > 0 && at_ <= order_.size() && order_[at_ - 1] == stage) {
    const bool is_back = at_ > stages_.size();
    trace_->add(spans::track::lane, (is_back ? "backward " : "forward ") + std::to_string(stage), step_.value,
                acquired_, spans::now());
  }
  if (!gathers_) return;
  if (at_ < order_.size() && order_[at_] == stage) return;  // used again at once
  for (const auto t : stages_[stage]) {
    if (numbers_.is_held(t)) continue;
    numbers_.drop_parameters(t);
    resident_.drop(t);
  }
}

}  // namespace perdura::worker
