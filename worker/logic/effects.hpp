// What the step protocol asks of the shell around it, and what the shell tells it. The shell runs the work of
// one worker on one lane, in the order of the effects: an apply asked for before a copy is finished before
// it.
#pragma once

#include <variant>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/control.hpp"
#include "actors/base/frames.hpp"

namespace perdura::worker {

struct partial {
  block slots;
  double loss{};
  blob gradient;
};

namespace effect {

struct send {
  incarnation to;
  frame what;
};
struct report {
  worker_message what;
};
// Answered by step_protocol::block_computed, and before that, where gradients are sharded, by tile_computed
// for each tile. Where parameters are sharded it asks for those it needs with parameters_wanted.
struct compute {
  step_number step;
  block slots;
};
// What is being computed for other steps or blocks is no longer wanted.
struct keep_only {
  step_number step;
  std::vector<block> blocks;
};
// Answered by tile_reduced. The partials cover all slots, in their order.
struct reduce {
  step_number step;
  tile_id tile;
  std::vector<partial> partials;
};
// Answered by tile_applied. Cannot be aborted.
struct apply {
  step_number step;
  tile_id tile;
  blob gradient;
  step_outcome outcome;
};
// Answered by tile_copied, with the state as of `version` or later and its hash. May be put off: it is for a
// learner.
struct copy {
  tile_id tile;
  step_number version;
};
// Answered by parameters_read.
struct read_parameters {
  tile_id tile;
  step_number version;
};
// Answered by tile_installed, or by tile_damaged where the state has another hash.
struct install {
  tile_id tile;
  step_number version;
  std::uint64_t hash{};
  blob state;
};
// The tile's state beside the parameters is not held here any more; its memory can be used for others.
struct let_go {
  tile_id tile;
};
struct install_parameters {
  tile_id tile;
  step_number version;
  blob values;
};
// Load all parameters, and all state of the tiles held, from the seed or a checkpoint. Answered by restored.
struct restore {
  era at;
  restore_source source;
  std::vector<tile_id> held;
  bool is_from_seed{};  // no verdict stands: there is no checkpoint, not even one of step 0
};
// Write the tile, as it is now, to the checkpoint store; goes on in the background.
struct snapshot {
  tile_id tile;
  step_number step;
  std::uint32_t of{};  // tiles that this worker writes of the snapshot
};
// The last step is applied: hash the tiles held and send the final report.
struct finish {
  step_number step;
};
// Fenced, or unable to go on: end the process.
struct stop {
  std::string why;
};

}  // namespace effect

using effects_item =
    std::variant<effect::send, effect::report, effect::compute, effect::keep_only, effect::reduce,
                 effect::apply, effect::copy, effect::read_parameters, effect::install, effect::let_go,
                 effect::install_parameters, effect::restore, effect::snapshot, effect::finish, effect::stop>;
using effects = std::vector<effects_item>;

}  // namespace perdura::worker
