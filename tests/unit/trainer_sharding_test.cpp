#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/trainer_fixture.hpp"
#include "worker/trainer/state.hpp"

using namespace perdura;
using namespace perdura::worker;

namespace {

job_config job_of(const std::string& sharding, const std::string& precision = "fp32",
                  bool checkpoints = false) {
  job_config job = tiny_job();
  job.model.depth = 2;
  job.sharding = sharding;
  job.precision = precision;
  job.model.activation_checkpointing = checkpoints;
  return job;
}

std::uint32_t count_of(const trainer& t) { return static_cast<std::uint32_t>(t.tiles().size()); }

// Members that train one job by hand: tile i is held by member i mod their number alone, gradients and
// parameters go to whom they concern.
class team {
 public:
  team(const job_config& job, std::vector<std::vector<block>> blocks) : blocks_(std::move(blocks)) {
    for (std::size_t m = 0; m < blocks_.size(); ++m) {
      members_.push_back(make_tiny(job, [&](trainer& t) {
        for (std::uint32_t i = 0; i < count_of(t); ++i)
          if (holder(i) == m) t.hold(tile_id(i));
      }));
    }
    gathers_ = level_of(job) == sharding_level::parameters;
  }

  trainer& member(std::size_t m) { return *members_[m]; }
  std::size_t holder(std::uint32_t tile) const { return tile % blocks_.size(); }

  // Hands out parameters as they are asked for, and takes them back.
  class gathering : public block_collector {
   public:
    gathering(team& all, trainer& self) : block_collector(count_of(self)), all_(all), self_(self) {}
    bool acquire(std::uint32_t stage) override {
      acquired.push_back(stage);
      for_tiles(stage, [&](std::uint32_t i) {
        if (!self_.is_held(tile_id(i)) && all_.gathers_)
          self_.install_parameters(tile_id(i),
                                   all_.member(all_.holder(i)).copy_parameters(tile_id(i)).bytes());
      });
      return true;
    }
    void release(std::uint32_t stage) override {
      released.push_back(stage);
      for_tiles(stage, [&](std::uint32_t i) { self_.drop_parameters(tile_id(i)); });
    }
    std::vector<std::uint32_t> acquired, released;

   private:
    template <class F>
    void for_tiles(std::uint32_t stage, F f) {
      for (std::uint32_t i = 0; i < count_of(self_); ++i)
        if (self_.tiles()[i].stage == stage) f(i);
    }
    team& all_;
    trainer& self_;
  };

  void step(step_number n) {
    std::vector<block_gradient> sums;
    for (std::size_t m = 0; m < blocks_.size(); ++m) {
      for (const auto& b : blocks_[m]) {
        gathering around(*this, *members_[m]);
        const auto sum = members_[m]->compute_block(n, b, around);
        REQUIRE(sum.has_value());
        sums.push_back({b, std::move(around.tiles), sum->loss});
      }
    }
    std::ranges::sort(sums, {}, [](const block_gradient& b) { return b.slots.first; });
    for (std::uint32_t i = 0; i < count_of(member(0)); ++i) {
      auto& owner = member(holder(i));
      std::vector<tile_partial> partials;
      for (const auto& b : sums) partials.push_back({b.slots, b.loss, b.tiles[i]});
      const auto reduced = owner.reduce(tile_id(i), partials).gradient;
      for (auto& m : members_)
        if (m->is_held(tile_id(i))) m->apply(tile_id(i), reduced, outcome_of(n));
      for (auto& m : members_)
        if (!m->is_held(tile_id(i)) && !gathers_)
          m->install_parameters(tile_id(i), owner.copy_parameters(tile_id(i)).bytes());
    }
  }

  std::uint64_t hash() {
    std::vector<std::uint64_t> hashes;
    for (std::uint32_t i = 0; i < count_of(member(0)); ++i)
      hashes.push_back(member(holder(i)).hash_tile(tile_id(i)));
    return kernels::hash64(std::as_bytes(std::span(hashes)));
  }

 private:
  std::vector<std::vector<block>> blocks_;
  std::vector<std::unique_ptr<trainer>> members_;
  bool gathers_ = false;
};

std::uint64_t trained(const job_config& job, const std::vector<std::vector<block>>& blocks,
                      std::uint64_t steps = 2) {
  team t(job, blocks);
  for (step_number n(1); n.value <= steps; n = n + 1) t.step(n);
  return t.hash();
}

const std::vector<std::vector<block>> slot_by_slot{
    {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}}};

}  // namespace

TEST_CASE(
    "every level, with and without activation checkpointing, in passes of 1 to 8 slots, has the same bits") {
  for (const std::string precision : {"fp32", "bf16"}) {
    CAPTURE(precision);
    const auto alone = trained(job_of("replicated", precision), slot_by_slot);
    for (const std::string level : {"replicated", "optimizer", "gradients", "parameters"}) {
      CAPTURE(level);
      for (const bool checkpoints : {false, true}) {
        CAPTURE(checkpoints);
        const auto job = job_of(level, precision, checkpoints);
        CHECK(trained(job, {{{0, 8}}}) == alone);
        CHECK(trained(job, {{{0, 4}}, {{4, 4}}}) == alone);
        CHECK(trained(job, {{{0, 2}, {2, 2}}, {{4, 1}, {5, 1}}, {{6, 2}}}) == alone);
      }
    }
  }
}

TEST_CASE("bf16 trains to other bits than fp32, and is another numeric class") {
  CHECK(trained(job_of("replicated", "bf16"), {{{0, 8}}}) != trained(job_of("replicated"), {{{0, 8}}}));
  const auto fp32 = make_tiny(job_of("replicated"))->numeric_class();
  const auto bf16 = make_tiny(job_of("replicated", "bf16"))->numeric_class();
  CHECK(fp32 != bf16);
  for (const char* level : {"optimizer", "gradients", "parameters"}) {
    CHECK(make_tiny(job_of(level))->numeric_class() == fp32);
    CHECK(make_tiny(job_of(level, "bf16", true))->numeric_class() == bf16);
  }
}

TEST_CASE("a member's state takes the memory of what the level gives it") {
  for (const std::string precision : {"fp32", "bf16"}) {
    CAPTURE(precision);
    const std::uint64_t compute = precision == "bf16" ? 2 : 4;
    const std::uint64_t held = precision == "bf16" ? 18 : 16;  // bytes a parameter
    const auto measured = [&](const char* level) {
      team t(job_of(level, precision), {{{0, 4}}, {{4, 4}}});
      t.step(step_number(1));
      return t.member(0).memory();
    };
    team t(job_of("optimizer", precision), {{{0, 4}}, {{4, 4}}});
    std::uint64_t mine = 0;
    for (std::uint32_t i = 0; i < count_of(t.member(0)); i += 2) mine += t.member(0).tiles()[i].size;
    const std::uint64_t all = t.member(0).parameter_count();
    const auto whole = measured("replicated"), optimizer = measured("optimizer"),
               gradients = measured("gradients"), parameters = measured("parameters");
    CHECK(whole.state == held * all);
    CHECK(whole.parameters == 0);
    for (const auto& m : {optimizer, gradients}) {
      CHECK(m.state == held * mine);
      CHECK(m.parameters == compute * (all - mine));
    }
    CHECK(parameters.state == held * mine);
    CHECK(parameters.parameters == 0);
    CHECK(gradients.gradients < whole.gradients);
  }
}

TEST_CASE(
    "what is computed among is asked for each stage, once forward and once back, the last one once for "
    "both") {
  team t(job_of("parameters"), {{{0, 4}}, {{4, 4}}});
  team::gathering around(t, t.member(0));
  REQUIRE(t.member(0).compute_block(step_number(1), {0, 4}, around));
  const std::vector<std::uint32_t> there_and_back{0, 1, 2, 3,
                                                  2, 1, 0};  // two blocks between embedding and head
  CHECK(around.acquired == there_and_back);
  CHECK(around.released == there_and_back);
  team whole(job_of("replicated"), {{{0, 8}}});
  team::gathering slot_by_slot(whole, whole.member(0));
  REQUIRE(whole.member(0).compute_block(step_number(1), {0, 4}, slot_by_slot));
  CHECK(slot_by_slot.acquired.size() == 4 * there_and_back.size());
}

TEST_CASE("each tile of a block leaves once, the last stage's first, with the block's loss") {
  struct order : block_surroundings {
    void tile_done(tile_id tile, blob, double loss) override {
      tiles.push_back(tile.value);
      losses.insert(loss);
    }
    std::vector<std::uint32_t> tiles;
    std::set<double> losses;
  };
  for (const char* level : {"replicated", "gradients"}) {
    auto t = make_tiny(job_of(level), [](trainer& made) {
      for (std::uint32_t i = 0; i < count_of(made); ++i) made.hold(tile_id(i));
    });
    order around;
    const auto sum = t->compute_block(step_number(1), {0, 4}, around);
    REQUIRE(sum);
    CHECK(around.losses == std::set<double>{sum->loss});
    CHECK(around.tiles.size() == t->tiles().size());
    CHECK(
        std::ranges::is_sorted(around.tiles, std::greater<>(), [&](auto i) { return t->tiles()[i].stage; }));
    std::ranges::sort(around.tiles);
    for (std::uint32_t i = 0; i < count_of(*t); ++i) CHECK(around.tiles[i] == i);
  }
}

TEST_CASE(
    "a pass that is stopped or given up anywhere releases what it acquired, and another one has the same "
    "bits") {
  struct fragile : block_collector {
    fragile(std::size_t tiles, int limit) : block_collector(tiles), left(limit) {}
    bool stop() override { return --left == 0; }
    bool acquire(std::uint32_t) override {
      if (--left == 0) return false;
      ++held;
      return true;
    }
    void release(std::uint32_t) override { --held; }
    int left;
    int held = 0;
  };
  for (const char* level : {"replicated", "parameters"}) {
    auto t = make_tiny(job_of(level), [](trainer& made) {
      for (std::uint32_t i = 0; i < count_of(made); ++i) made.hold(tile_id(i));
    });
    const auto undisturbed = compute(*t, step_number(1), {0, 2}).tiles;
    bool ended = false;
    for (int limit = 1; !ended; ++limit) {
      fragile around(t->tiles().size(), limit);
      ended = t->compute_block(step_number(1), {0, 2}, around).has_value();
      CHECK(around.held == 0);
      CHECK((around.left <= 0) != ended);
      REQUIRE(limit < 1000);
      if (limit % 8 == 0) CHECK(compute(*t, step_number(1), {0, 2}).tiles == undisturbed);
    }
  }
}

TEST_CASE("slots are counted as their work gets on, and their time adds up to the block's") {
  struct counting : block_surroundings {
    void slot_done(std::chrono::nanoseconds spent) override { slots.push_back(spent); }
    std::vector<std::chrono::nanoseconds> slots;
  };
  for (const char* level : {"replicated", "gradients"}) {
    auto t = make_tiny(job_of(level), [](trainer& made) {
      for (std::uint32_t i = 0; i < count_of(made); ++i) made.hold(tile_id(i));
    });
    counting around;
    const auto sum = t->compute_block(step_number(1), {0, 4}, around);
    REQUIRE(sum);
    CHECK(around.slots.size() == 4);
    std::chrono::nanoseconds total{};
    for (const auto spent : around.slots) {
      CHECK(spent.count() > 0);
      total += spent;
    }
    CHECK(total <= sum->spent);
  }
}

TEST_CASE("a tile can be handed on: let go by one, held by the other, to the same bits") {
  for (const char* precision : {"fp32", "bf16"}) {
    team t(job_of("optimizer", precision), {{{0, 4}}, {{4, 4}}});
    t.step(step_number(1));
    auto& from = t.member(0);
    auto& to = t.member(1);
    const auto hash = from.hash_tile(tile_id(0));
    const auto before = from.memory().state;
    to.install_tile(tile_id(0), from.copy_tile(tile_id(0)).bytes());
    from.let_go(tile_id(0));
    CHECK(to.hash_tile(tile_id(0)) == hash);
    CHECK_FALSE(from.is_held(tile_id(0)));
    CHECK(from.has_parameters(tile_id(0)));
    CHECK(from.copy_parameters(tile_id(0)) == to.copy_parameters(tile_id(0)));
    CHECK(from.memory().state < before);
  }
}

TEST_CASE("under bf16 parameters travel in two bytes each, and holders compute with what the others get") {
  team t(job_of("optimizer", "bf16"), {{{0, 4}}, {{4, 4}}});
  t.step(step_number(1));
  for (std::uint32_t i = 0; i < count_of(t.member(0)); ++i) {
    const auto sent = t.member(0).copy_parameters(tile_id(i));
    CHECK(sent.size() == 2 * t.member(0).tiles()[i].size);
    CHECK(sent == t.member(1).copy_parameters(tile_id(i)));
  }
  CHECK(compute(t.member(0), step_number(2), {0, 2}).tiles ==
        compute(t.member(1), step_number(2), {0, 2}).tiles);
}

TEST_CASE("bf16 learns as fp32 does") {
  const auto loss_after = [](const char* precision, std::uint64_t steps) {
    auto t = make_tiny(job_of("replicated", precision));
    double loss = 0;
    for (step_number n(1); n.value <= steps; n = n + 1) {
      const auto reduced = reduce_all(*t, {compute(*t, n, {0, 8})});
      for (std::uint32_t i = 0; i < count_of(*t); ++i)
        t->apply(tile_id(i), reduced[i].gradient, outcome_of(n));
      loss = reduced[0].loss;
    }
    return loss;
  };
  CHECK(loss_after("bf16", 1) == doctest::Approx(loss_after("fp32", 1)).epsilon(0.01));
  CHECK(loss_after("bf16", 40) < 0.8 * loss_after("bf16", 1));
  CHECK(loss_after("bf16", 40) == doctest::Approx(loss_after("fp32", 40)).epsilon(0.05));
}

TEST_CASE("pages that no tile in use shares are given back, the others stay") {
  const std::vector<tile> tiles{{0, 1000, 0}, {1000, 3000, 0}, {4000, 3000, 1}, {7000, 100, 1}};
  training_state state(
      {.parameter_count = 7100, .tiles = tiles, .keeps_all_parameters = false, .computes_in_bf16 = true});
  CHECK(state.resident_bytes() == 0);
  const auto fill = [&](std::uint32_t i) {
    state.hold(tile_id(i));
    for (auto which : {state_array::parameters, state_array::first_moment, state_array::second_moment,
                       state_array::average})
      std::ranges::fill(state.slice(which, tiles[i]), static_cast<float>(i + 1));
    state.round_parameters(tiles[i]);
  };
  for (std::uint32_t i = 0; i < tiles.size(); ++i) fill(i);
  std::vector<std::uint64_t> hashes;
  for (std::uint32_t i = 0; i < tiles.size(); ++i) hashes.push_back(state.hash(tile_id(i)));
  const auto all = state.resident_bytes();
  CHECK(all >= 7100 * 18);
  state.let_go(tile_id(1));
  CHECK(state.resident_bytes() < all);
  for (const std::uint32_t i : {0, 2, 3}) CHECK(state.hash(tile_id(i)) == hashes[i]);
  fill(1);
  CHECK(state.hash(tile_id(1)) == hashes[1]);
  for (std::uint32_t i = 0; i < tiles.size(); ++i) {
    state.let_go(tile_id(i));
    CHECK(state.has_parameters(tile_id(i)));
    state.drop_parameters(tile_id(i));
    CHECK_FALSE(state.has_parameters(tile_id(i)));
  }
  CHECK(state.resident_bytes() == 0);
}

TEST_CASE("resident memory is that of the tiles held and the parameters kept") {
  constexpr std::uint64_t page = 4096;
  for (const bool keeps_all : {false, true}) {
    std::vector<tile> tiles;
    for (std::uint64_t i = 0; i < 8; ++i) tiles.push_back({i * tile_floats_max, tile_floats_max, 0});
    training_state state(
        {.parameter_count = 8 * tile_floats_max, .tiles = tiles, .keeps_all_parameters = keeps_all});
    const std::vector<float> values(tile_floats_max, 1.0F);
    for (std::uint32_t i = 0; keeps_all && i < 8; ++i) state.set_parameters(tiles[i], values);
    for (const std::uint32_t i : {1, 2, 6}) {
      const auto bytes = std::vector<std::byte>(state_arrays * tile_floats_max * sizeof(float));
      state.install(tile_id(i), bytes);
    }
    CHECK(state.resident_bytes() >= state.held_bytes() + state.parameter_bytes());
    CHECK(state.resident_bytes() <= state.held_bytes() + state.parameter_bytes() + 5 * 4 * 2 * page);
  }
}
