#include "coordinator/logic/forecast.hpp"

#include <algorithm>
#include <bit>

namespace perdura::coordinator {

namespace {

constexpr std::uint64_t float_bytes = 4;
constexpr std::uint64_t arrays = 4;         // of a tile's state: parameters, two moments, average
constexpr std::uint32_t stages_nearby = 2;  // the one in use and the next

// Parameters by member, and by stage.
struct shares {
  std::uint64_t all = 0;
  std::uint64_t largest_stage = 0;
  std::uint64_t last_stage = 0;
  std::vector<std::uint64_t> stages;
  std::vector<std::uint64_t> owned, held;   // by member
  std::vector<std::uint64_t> held_of_last;  // of the last stage
  std::vector<std::uint64_t> gathered;      // most that is not held of stages next to each other
  std::vector<std::uint32_t> tiles_owned, tiles_held;
};

shares shares_of(const job_costs& costs, const tile_map& holders, std::size_t members) {
  shares s;
  s.owned.resize(members);
  s.held.resize(members);
  s.held_of_last.resize(members);
  s.gathered.resize(members);
  s.tiles_owned.resize(members);
  s.tiles_held.resize(members);
  for (const auto& t : costs.tiles) {
    if (s.stages.size() <= t.stage) s.stages.resize(t.stage + 1);
    s.stages[t.stage] += t.size;
    s.all += t.size;
  }
  std::vector<std::vector<std::uint64_t>> held_of(members, std::vector<std::uint64_t>(s.stages.size()));
  for (std::size_t t = 0; t < costs.tiles.size(); ++t) {
    s.owned[holders[t].front()] += costs.tiles[t].size;
    ++s.tiles_owned[holders[t].front()];
    for (const auto m : holders[t]) {
      s.held[m] += costs.tiles[t].size;
      ++s.tiles_held[m];
      held_of[m][costs.tiles[t].stage] += costs.tiles[t].size;
    }
  }
  s.largest_stage = *std::max_element(s.stages.begin(), s.stages.end());
  s.last_stage = s.stages.back();
  for (std::size_t m = 0; m < members; ++m) {
    s.held_of_last[m] = held_of[m].back();
    for (std::size_t first = 0; first < s.stages.size(); ++first) {
      std::uint64_t missing = 0;
      for (auto i = first; i < std::min(s.stages.size(), first + stages_nearby); ++i)
        missing += s.stages[i] - held_of[m][i];
      s.gathered[m] = std::max(s.gathered[m], missing);
    }
  }
  return s;
}

class model {
 public:
  model(const job_costs& costs, const job_config& job, job_forecast& plan)
      : costs_(costs),
        plan_(plan),
        streams_(plan.level >= sharding_level::gradients),
        gathers_(plan.level == sharding_level::parameters),
        snapshots_(job.checkpoint.interval_steps > 0),
        computed_with_(job.precision == "bf16" ? 2 : float_bytes),
        shares_(shares_of(costs, plan.holders, plan.members.size())) {
    for (const auto& m : plan.members) all_blocks_ += static_cast<std::uint32_t>(m.blocks.size());
  }

  void fill(const std::vector<candidate>& workers, double bytes_per_second) {
    plan_.of.resize(plan_.members.size());
    count_bytes();
    for (std::size_t m = 0; m < plan_.of.size(); ++m) {
      auto& f = plan_.of[m];
      for (const auto& b : plan_.members[m].blocks) f.slots += b.size;
      f.blocks = static_cast<std::uint32_t>(plan_.members[m].blocks.size());
      f.tiles_owned = shares_.tiles_owned[m];
      f.tiles_held = shares_.tiles_held[m];
      f.memory = memory_of(m);
      const auto speed = workers[m].slots_per_second;
      f.compute_seconds = speed > 0 ? f.slots * costs_.slot_seconds / speed : 0;
      plan_.compute_seconds = std::max(plan_.compute_seconds, f.compute_seconds);
      plan_.bytes_on_wire += f.bytes_out;
    }
    plan_.step_seconds = step_time(bytes_per_second);
  }

 private:
  std::uint32_t blocks(std::size_t m) const {
    return static_cast<std::uint32_t>(plan_.members[m].blocks.size());
  }
  std::uint32_t largest_block(std::size_t m) const {
    std::uint32_t largest = 0;
    for (const auto& b : plan_.members[m].blocks) largest = std::max(largest, b.size);
    return largest;
  }

  memory_forecast memory_of(std::size_t m) const {
    const auto held = shares_.held[m], owned = shares_.owned[m];
    const bool is_bf16 = computed_with_ != float_bytes;
    const auto largest = largest_block(m);
    // Sums of the canonical tree that wait for their other half, and the one being computed.
    const auto pending = largest == 0 ? 0 : static_cast<std::uint64_t>(std::bit_width(largest));
    memory_forecast f;
    f.parameters = (gathers_ ? held : shares_.all) * computed_with_;
    f.master = is_bf16 ? held * float_bytes : 0;
    f.moments = 2 * held * float_bytes;
    f.average = held * float_bytes;
    f.gradients = held * float_bytes;  // reduced, kept until applied
    if (streams_) {
      f.gradients += (pending + (pending > 0 ? 1 : 0)) * shares_.largest_stage * float_bytes;
      f.partials = all_blocks_ * owned * float_bytes;
    } else {
      f.gradients += (pending + std::max(blocks(m), 1U) - 1) * shares_.all * float_bytes;
      f.partials = (all_blocks_ - blocks(m)) * owned * float_bytes;
    }
    if (largest > 0) f.activations = costs_.workspace_bytes + costs_.slot_bytes * (streams_ ? largest : 1);
    if (gathers_ && largest > 0) f.gathered = shares_.gathered[m] * computed_with_;
    if (snapshots_) f.buffers += owned * arrays * float_bytes;
    if (plan_.level != sharding_level::replicated) f.buffers += owned * computed_with_;
    f.process = costs_.process_bytes;
    return f;
  }

  void count_bytes() {
    const auto members = plan_.members.size();
    phases_.resize(members);
    for (std::size_t m = 0; m < members; ++m) {
      auto& p = phases_[m];
      p.partials.out = blocks(m) * (shares_.all - shares_.owned[m]) * float_bytes;
      p.partials.in = (all_blocks_ - blocks(m)) * shares_.owned[m] * float_bytes;
      p.reduced.in = (shares_.held[m] - shares_.owned[m]) * float_bytes;
      const auto missing = shares_.all - shares_.held[m];
      if (gathers_) {  // there and back again, but for the last stage, at each pass
        const auto missing_of_last = shares_.last_stage - shares_.held_of_last[m];
        p.parameters.in = blocks(m) * (2 * missing - missing_of_last) * computed_with_;
      } else {
        p.parameters.in = missing * computed_with_;
      }
    }
    const auto last = shares_.stages.size() - 1;
    for (std::size_t t = 0; t < costs_.tiles.size(); ++t) {
      const auto& tile = costs_.tiles[t];
      const auto& holders = plan_.holders[t];
      auto& p = phases_[holders.front()];
      p.reduced.out += tile.size * (holders.size() - 1) * float_bytes;
      std::uint64_t copies = members - holders.size();
      if (gathers_) {
        copies = all_blocks_;
        for (const auto h : holders) copies -= blocks(h);
        if (tile.stage != last) copies *= 2;
      }
      p.parameters.out += tile.size * copies * computed_with_;
    }
    for (std::size_t m = 0; m < members; ++m) {
      const auto& p = phases_[m];
      plan_.of[m].bytes_out = p.partials.out + p.reduced.out + p.parameters.out;
      plan_.of[m].bytes_in = p.partials.in + p.reduced.in + p.parameters.in;
    }
  }

  // All compute, then what is left of the exchange: sums of all blocks but the last one leave while the next
  // is computed, gathered parameters come while the stage before is.
  double step_time(double bytes_per_second) const {
    double compute = 0, rest = 0;
    for (std::size_t m = 0; m < plan_.of.size(); ++m) {
      const auto& p = phases_[m];
      const auto own = plan_.of[m].compute_seconds;
      const auto seconds = [&](const traffic& t) {
        return static_cast<double>(std::max(t.in, t.out)) / bytes_per_second;
      };
      const auto many = std::max(1.0, static_cast<double>(blocks(m)));
      const auto sums = seconds(p.partials);
      const auto after = std::max(sums - own * (many - 1) / many, sums / many);
      const auto numbers = all_blocks_ * static_cast<double>(shares_.owned[m]) * costs_.reduce_seconds +
                           static_cast<double>(shares_.held[m]) * costs_.apply_seconds;
      compute = std::max(compute, gathers_ ? std::max(own, seconds(p.parameters)) : own);
      rest = std::max(rest, after + seconds(p.reduced) + numbers + (gathers_ ? 0 : seconds(p.parameters)));
    }
    return compute + rest;
  }

  struct traffic {
    std::uint64_t out = 0, in = 0;
  };
  struct phases {
    traffic partials, reduced, parameters;
  };
  const job_costs& costs_;
  job_forecast& plan_;
  const bool streams_, gathers_, snapshots_;
  const std::uint64_t computed_with_;
  const shares shares_;
  std::uint32_t all_blocks_ = 0;
  std::vector<phases> phases_;
};

}  // namespace

std::uint64_t job_forecast::memory_most() const {
  std::uint64_t most = 0;
  for (const auto& f : of) most = std::max(most, f.memory.total());
  return most;
}

job_forecast forecast(const job_costs& costs, const job_config& job, sharding_level level,
                      const std::vector<candidate>& workers, double bytes_per_second) {
  job_forecast f;
  f.level = level;
  const auto members = static_cast<std::uint32_t>(workers.size());
  f.replicas = level == sharding_level::replicated ? members : std::min(job.replicas, members);
  f.members =
      plan_blocks(job.batch.slots, workers, level >= sharding_level::gradients ? job.batch.pass_slots : 0);
  f.holders = plan_tiles(weights_of(costs.tiles), workers, f.replicas);
  model(costs, job, f).fill(workers, bytes_per_second);
  return f;
}

std::vector<job_forecast> forecast_all(const job_costs& costs, const job_config& job,
                                       const std::vector<candidate>& workers, double bytes_per_second) {
  std::vector<job_forecast> all;
  for (const auto level : {sharding_level::replicated, sharding_level::optimizer, sharding_level::gradients,
                           sharding_level::parameters})
    all.push_back(forecast(costs, job, level, workers, bytes_per_second));
  return all;
}

}  // namespace perdura::coordinator
