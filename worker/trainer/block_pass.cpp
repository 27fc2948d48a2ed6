#include "worker/trainer/block_pass.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/sums.hpp"

namespace perdura::worker {
namespace {

// The way back computes two products for each one of the way there.
constexpr double forward_part = 1.0 / 3;
constexpr double backward_part = 2.0 / 3;

class acquired_stage {
 public:
  acquired_stage(work_watch& watch, std::uint32_t stage)
      : watch_(watch), stage_(stage), is_here_(watch.acquire(stage)) {}
  ~acquired_stage() {
    if (is_here_) watch_.release(stage_);
  }
  acquired_stage(const acquired_stage&) = delete;
  acquired_stage& operator=(const acquired_stage&) = delete;
  explicit operator bool() const { return is_here_; }

 private:
  work_watch& watch_;
  const std::uint32_t stage_;
  const bool is_here_;
};

// Slot k completes as many nodes of the tree as its number ends in ones.
std::uint32_t nodes_completed(std::uint32_t k) { return static_cast<std::uint32_t>(std::countr_one(k)); }

void add_to(float* left, const float* right, std::size_t count) {
  kernels::add({left, count}, {right, count}, {left, count});
}

}  // namespace

// ---- work_watch

template <class F>
auto work_watch::aside(F f) {
  spent_ += std::chrono::steady_clock::now() - since_;
  struct resume {
    work_watch& watch;
    ~resume() { watch.since_ = std::chrono::steady_clock::now(); }
  } resume{*this};
  return f();
}

bool work_watch::acquire(std::uint32_t stage) {
  return aside([&] { return around_.acquire(stage); });
}

void work_watch::release(std::uint32_t stage) {
  aside([&] { around_.release(stage); });
}

bool work_watch::worked(double share) {
  slots_ += share;
  return aside([&] {
    // Shares are no exact binary fractions.
    for (constexpr double rounding = 1e-6; slots_ + rounding >= static_cast<double>(slots_told_ + 1);) {
      ++slots_told_;
      around_.slot_done(spent_ - told_);
      told_ = spent_;
    }
    if (around_.stop()) return false;
    around_.breathe();
    return true;
  });
}

void work_watch::tile_done(tile_id tile, blob gradient, double loss) {
  aside([&] { around_.tile_done(tile, std::move(gradient), loss); });
}

// ---- the pass

bool run_pass(denoiser& model, std::span<slot_place> places, std::uint32_t k, gradient_sink& sink,
              work_watch& watch, std::span<double> losses) {
  const std::uint32_t last = model.stages() - 1;
  const double share = 1.0 / model.stages();
  const auto forward = [&](std::uint32_t stage) {
    return std::ranges::all_of(places, [&](slot_place& p) {
      model.forward_stage(stage, p.rows(), *p.values);
      return watch.worked(forward_part * share);
    });
  };
  const auto backward = [&](std::uint32_t stage) {
    for (std::uint32_t i = 0; i < places.size(); ++i) {
      model.backward_stage(stage, places[i].rows(), *places[i].values, sink.into(k + i, stage));
      sink.written(k + i, stage);
      if (!watch.worked(backward_part * share)) return false;
    }
    return true;
  };
  for (std::uint32_t stage = 0; stage < last; ++stage) {
    const acquired_stage here(watch, stage);
    if (!here || !forward(stage)) return false;
  }
  {
    const acquired_stage here(watch, last);
    if (!here || !forward(last)) return false;
    for (std::size_t i = 0; i < places.size(); ++i)
      losses[i] = model.loss(places[i].rows(), *places[i].values);
    if (!backward(last)) return false;
  }
  for (std::uint32_t stage = last; stage-- > 0;) {
    const acquired_stage here(watch, stage);
    if (!here || !backward(stage)) return false;
  }
  return true;
}

double tree_sum(std::span<const double> losses) {
  if (losses.size() == 1) return losses[0];
  const std::size_t half = losses.size() / 2;
  return tree_sum(losses.first(half)) + tree_sum(losses.subspan(half));
}

std::vector<stage_part> parts_of(const denoiser& model, const std::vector<tile>& tiles) {
  std::vector<stage_part> parts;
  for (const auto& span : spans_of(model.parameters())) parts.push_back({span});
  for (std::uint32_t i = 0; i < tiles.size(); ++i) {
    auto& part = parts[tiles[i].stage];
    if (part.end_tile == 0) part.first_tile = i;
    part.end_tile = i + 1;
  }
  return parts;
}

// ---- sums

float* whole_gradients::into(std::uint32_t, std::uint32_t stage) {
  if (stage + 1 == sum_.stages.size()) pending_.push_back(buffers_.take());
  return pending_.back().get() + sum_.stages[stage].span.first;
}

void whole_gradients::written(std::uint32_t k, std::uint32_t stage) {
  const auto& part = sum_.stages[stage];
  const std::uint32_t nodes = nodes_completed(k);
  const std::size_t newest = pending_.size() - 1;
  for (std::size_t i = newest; i > newest - nodes; --i)
    add_to(pending_[i - 1].get() + part.span.first, pending_[i].get() + part.span.first, part.span.count);
  if (k + 1 == sum_.slots) {
    for (std::uint32_t i = part.first_tile; i < part.end_tile; ++i) {
      const auto& t = sum_.tiles[i];
      sum_.done(tile_id(i), share({pending_.front(), pending_.front().get() + t.first}, t.size));
    }
  }
  if (stage == 0) pending_.resize(pending_.size() - nodes);
}

float* stage_gradients::into(std::uint32_t, std::uint32_t) {
  pending_.push_back(stage_buffers_.take());
  return pending_.back().get();
}

void stage_gradients::written(std::uint32_t k, std::uint32_t stage) {
  const auto& part = sum_.stages[stage];
  const bool is_last = k + 1 == sum_.slots;
  // The root of the tree is summed into the buffers of the tiles.
  for (std::uint32_t nodes = nodes_completed(k) - (is_last && k > 0); nodes > 0; --nodes) {
    add_to(pending_[pending_.size() - 2].get(), pending_.back().get(), part.span.count);
    pending_.pop_back();
  }
  if (!is_last) return;
  leave(part);
  pending_.clear();
}

void stage_gradients::leave(const stage_part& part) {
  for (std::uint32_t i = part.first_tile; i < part.end_tile; ++i) {
    const auto& t = sum_.tiles[i];
    const auto from = [&](const std::shared_ptr<float>& buffer) {
      return std::span<const float>(buffer.get() + (t.first - part.span.first), t.size);
    };
    auto buffer = tile_buffers_.take();
    if (pending_.size() == 2)
      kernels::add(from(pending_[0]), from(pending_[1]), {buffer.get(), t.size});
    else
      std::ranges::copy(from(pending_[0]), buffer.get());
    sum_.done(tile_id(i), share(std::move(buffer), t.size));
  }
}

}  // namespace perdura::worker
