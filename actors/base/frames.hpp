// What workers say to each other over the data links.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/plan.hpp"

namespace perdura {

// A finished block's gradient sum on one tile, to the tile's owner.
struct partial_frame {
  block slots;
  tile_id tile;
  double loss{};  // sum over the block; counted with tile 0 only
  blob gradient;
};

// g(n) of a tile, from its owner to the replicas; to learners it is part of their feed.
struct reduced_frame {
  tile_id tile;
  double norm2{};
  bool finite{};
  double loss{};
  blob gradient;
};

// A tile's parameters at version `step`, from the owner to members that do not hold the tile.
struct parameters_frame {
  tile_id tile;
  blob values;
};

// "I need the parameters of this tile at version `step`", to the tile's owner.
struct parameters_request {
  tile_id tile;
};

// All state of a tile at version `step`, from its feeder to a learner of plan `target`.
struct tile_copy_frame {
  plan_id target;
  tile_id tile;
  std::uint64_t hash{};  // of the state: XXH3
  blob state;
};

// From a learner of plan `target` to the tile's feeder: the next copy may come. Where the learner still has
// the tile from a feed that broke off, `have` says at which version: that much need not be sent again.
struct feed_note {
  plan_id target;
  tile_id tile;
  std::optional<step_number> have;
};

struct vote_part {
  tile_id tile;
  double norm2{};
  bool finite{};
  double loss{};
  bool operator==(const vote_part& o) const;  // compares bits
};

// "I hold g(step) of all my tiles, and step - 1 is applied": fixed before it is first sent, the same to all.
struct vote_frame {
  std::vector<vote_part> parts;  // of all tiles held, by tile
  plan_id prepared;              // the proposal that may take effect at this step's verdict, or none
};

// Carries the verdict in the header, when there is no other frame to carry it.
struct verdict_note {};

// From a leaver to the members of the plan that it leaves for: it knows the verdict that named it.
struct verdict_ack {
  plan_id target;
};

// From a learner of plan `target` to all members: its copies are complete and fed.
struct ready_note {
  plan_id target;
};

using frame_body = std::variant<partial_frame, reduced_frame, parameters_frame, tile_copy_frame, vote_frame,
                                verdict_note, verdict_ack, ready_note, parameters_request, feed_note>;

struct frame {
  timeline_number timeline;
  era at;
  plan_id plan;
  step_number step;
  incarnation from;
  std::optional<verdict> observed;  // the newest verdict the sender knows
  frame_body body;
};

}  // namespace perdura
