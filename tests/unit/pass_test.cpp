// How parameters are gathered ahead of a block's stages and freed behind them.
#include "worker/pass.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace perdura;
using namespace perdura::worker;

namespace {

// Four stages of one tile each, of which it holds the second.
class four_stages final : public trainer {
 public:
  four_stages() {
    for (std::uint32_t s = 0; s < 4; ++s) tiles_.push_back({s * 16ULL, 16, s});
  }
  std::vector<named_tensor> tensors() const override { return {}; }
  const std::vector<tile>& tiles() const override { return tiles_; }
  std::uint64_t parameter_count() const override { return 64; }
  std::uint64_t numeric_class() override { return 1; }
  void hold(tile_id) override {}
  void let_go(tile_id) override {}
  bool is_held(tile_id t) const override { return t.value == 1; }
  void initialise() override {}
  std::optional<computed_sum> compute_block(step_number, block, block_surroundings& around) override {
    for (std::uint32_t s = 0; s < 4; ++s)
      if (!visit(s, around)) return std::nullopt;
    for (std::uint32_t s = 3; s-- > 0;)
      if (!visit(s, around)) return std::nullopt;
    return computed_sum{};
  }
  reduced_tile reduce(tile_id, std::span<const tile_partial>) override { return {}; }
  void apply(tile_id, const blob&, const step_outcome&) override {}
  blob copy_tile(tile_id) const override { return {}; }
  void install_tile(tile_id, std::span<const std::byte>) override {}
  std::uint64_t hash_tile(tile_id) const override { return 0; }
  blob copy_parameters(tile_id) const override { return {}; }
  void install_parameters(tile_id t, std::span<const std::byte>) override {
    here_.insert(t.value);
    most_ = std::max(most_, here_.size());
  }
  bool has_parameters(tile_id t) const override { return here_.contains(t.value) || is_held(t); }
  void drop_parameters(tile_id t) override { here_.erase(t.value); }
  memory_use memory() const override { return {}; }

  std::vector<std::uint32_t> visited;
  std::set<std::uint32_t> here_;
  std::size_t most_ = 0;

 private:
  bool visit(std::uint32_t stage, block_surroundings& around) {
    if (!around.acquire(stage)) return false;
    CHECK(has_parameters(tile_id(stage)));
    visited.push_back(stage);
    around.release(stage);
    return true;
  }
  std::vector<tile> tiles_;
};

struct gathering {
  four_stages numbers;
  resident_parameters resident{4};
  lane on;
  std::vector<std::uint32_t> asked;

  gathering() { resident.set(tile_id(1), step_number(4)); }
  void arrives(std::uint32_t t) {
    if (!resident.is_wanted(tile_id(t))) return;
    numbers.install_parameters(tile_id(t), {});
    resident.set(tile_id(t), step_number(4));
    resident.arrived(tile_id(t));
  }
  // Whoever is asked answers at once, by the lane.
  std::optional<computed_sum> run(bool answers, std::atomic<bool>& stopped) {
    pass::events tell;
    tell.wanted = [&](tile_id t) {
      asked.push_back(t.value);
      if (answers) on.run([this, t] { arrives(t.value); });
    };
    tell.slot_done = [](auto) {};
    tell.done = [](auto, auto, auto) {};
    pass around(on, numbers, resident, step_number(5), true, stopped, tell, nullptr);
    return numbers.compute_block(step_number(5), {0, 1}, around);
  }
};

template <class Work>
void on_the_lane(lane& l, Work work) {
  std::mutex m;
  std::condition_variable done;
  bool is_done = false;
  l.compute(step_number(5), {0, 1}, [&](const std::atomic<bool>&) {
    work();
    const std::lock_guard lock(m);
    is_done = true;
    done.notify_one();
  });
  std::unique_lock lock(m);
  done.wait(lock, [&] { return is_done; });
}

}  // namespace

TEST_CASE("parameters are asked for a stage ahead, dropped behind, and gathered again on the way back") {
  gathering g;
  std::atomic<bool> stopped = false;
  bool is_complete = false;
  on_the_lane(g.on, [&] { is_complete = g.run(true, stopped).has_value(); });
  CHECK(is_complete);
  CHECK(g.numbers.visited == std::vector<std::uint32_t>{0, 1, 2, 3, 2, 1, 0});
  // The held one is never asked for; the last stage serves both passes at once.
  CHECK(g.asked == std::vector<std::uint32_t>{0, 2, 3, 2, 0});
  CHECK(g.numbers.most_ <= 2);  // beside the one that is held
  CHECK(g.numbers.here_.empty());
  CHECK_FALSE(g.resident.version(tile_id(0)));
  CHECK(g.resident.version(tile_id(1)) == step_number(4));
}

TEST_CASE("a block that is no longer wanted stops waiting for its parameters") {
  gathering g;
  std::mutex m;
  std::condition_variable begun;
  bool is_begun = false, is_complete = true, is_over = false;
  g.on.compute(step_number(5), {0, 1}, [&](const std::atomic<bool>& stop) {
    pass::events tell;
    tell.wanted = [&](tile_id) {
      const std::lock_guard lock(m);
      is_begun = true;
      begun.notify_one();
    };
    pass around(g.on, g.numbers, g.resident, step_number(5), true, stop, tell, nullptr);
    is_complete = g.numbers.compute_block(step_number(5), {0, 1}, around).has_value();
    const std::lock_guard lock(m);
    is_over = true;
    begun.notify_one();
  });
  std::unique_lock lock(m);
  begun.wait(lock, [&] { return is_begun; });
  lock.unlock();
  g.on.keep_only(step_number(6), {});
  lock.lock();
  begun.wait(lock, [&] { return is_over; });
  CHECK_FALSE(is_complete);
}

TEST_CASE("parameters that come when nobody waits for them are not taken") {
  gathering g;
  g.arrives(0);
  CHECK(g.numbers.here_.empty());
}
