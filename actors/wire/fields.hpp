// What of each shared struct travels, in which order. A member that is not listed is an error at compile
// time, but for the blobs of frames: those travel as the message's body (codec.hpp).
#pragma once

#include "actors/base/control.hpp"
#include "actors/base/frames.hpp"
#include "actors/wire/archive.hpp"

namespace perdura {

// What is not a matter of layout but must hold before any code may touch the value; null if it does.
inline constexpr std::uint32_t slots_max = 1U << 20;

inline const char* wire_flaw(const block& b) {
  if (b.size > slots_max || b.first >= slots_max || !is_aligned(b)) return "a block of slots is not aligned";
  return nullptr;
}

inline const char* wire_flaw(const plan& p) {
  for (const auto& holders : p.holders) {
    if (holders.empty()) return "a plan has a tile without an owner";
    for (const auto index : holders)
      if (index >= p.members.size()) return "a plan names a holder that is no member";
  }
  return nullptr;
}

}  // namespace perdura

namespace perdura::wire {

namespace detail {
struct anything {
  template <class T>
  operator T&() const;
  template <class T>
  operator T&&() const;
};

template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), anything{})...}; };
}
template <class T, std::size_t N = 0>
constexpr std::size_t members() {
  if constexpr (takes<T>(std::make_index_sequence<N + 1>{}))
    return members<T, N + 1>();
  else
    return N;
}
}  // namespace detail

// PERDURA_WIRE_STRUCT(type, number of blobs left out, pointers to members in wire order ...)
#define PERDURA_WIRE_STRUCT(type, blobs, ...)                                                              \
  template <>                                                                                              \
  inline constexpr bool is_described<type> = true;                                                         \
  template <>                                                                                              \
  inline constexpr auto fields_of<type> = std::tuple{__VA_ARGS__};                                         \
  static_assert(std::tuple_size_v<decltype(std::tuple{__VA_ARGS__})> + (blobs) == detail::members<type>(), \
                "list every member of " #type);

#define PERDURA_WIRE_ENUM(type, last)                   \
  template <>                                           \
  inline constexpr bool is_described_enum<type> = true; \
  template <>                                           \
  inline constexpr type last_of<type> = type::last;

// ids.hpp
PERDURA_WIRE_STRUCT(incarnation, 0, &incarnation::high, &incarnation::low)
PERDURA_WIRE_STRUCT(era, 0, &era::term, &era::count)
PERDURA_WIRE_STRUCT(plan_id, 0, &plan_id::at, &plan_id::sequence)

// plan.hpp
PERDURA_WIRE_ENUM(plan_action, stop)
PERDURA_WIRE_STRUCT(block, 0, &block::first, &block::size)
PERDURA_WIRE_STRUCT(plan_member, 0, &plan_member::who, &plan_member::blocks)
PERDURA_WIRE_STRUCT(plan, 0, &plan::id, &plan::members, &plan::holders, &plan::action, &plan::snapshot)
PERDURA_WIRE_STRUCT(step_outcome, 0, &step_outcome::gradient_norm, &step_outcome::clip_scale,
                    &step_outcome::learning_rate, &step_outcome::skipped, &step_outcome::optimizer_time,
                    &step_outcome::loss, &step_outcome::skips_in_a_row)
PERDURA_WIRE_STRUCT(verdict, 0, &verdict::step, &verdict::timeline, &verdict::plan, &verdict::next_plan,
                    &verdict::outcome)
PERDURA_WIRE_STRUCT(tile_move, 0, &tile_move::tile, &tile_move::from, &tile_move::to)
PERDURA_WIRE_STRUCT(tile, 0, &tile::first, &tile::size, &tile::stage)
PERDURA_WIRE_STRUCT(named_tensor, 0, &named_tensor::name, &named_tensor::shape, &named_tensor::first)

// frames.hpp
PERDURA_WIRE_STRUCT(partial_frame, 1, &partial_frame::slots, &partial_frame::tile, &partial_frame::loss)
PERDURA_WIRE_STRUCT(reduced_frame, 1, &reduced_frame::tile, &reduced_frame::norm2, &reduced_frame::finite,
                    &reduced_frame::loss)
PERDURA_WIRE_STRUCT(parameters_frame, 1, &parameters_frame::tile)
PERDURA_WIRE_STRUCT(tile_copy_frame, 1, &tile_copy_frame::target, &tile_copy_frame::tile,
                    &tile_copy_frame::hash)
PERDURA_WIRE_STRUCT(parameters_request, 0, &parameters_request::tile)
PERDURA_WIRE_STRUCT(feed_note, 0, &feed_note::target, &feed_note::tile, &feed_note::have)
PERDURA_WIRE_STRUCT(vote_part, 0, &vote_part::tile, &vote_part::norm2, &vote_part::finite, &vote_part::loss)
PERDURA_WIRE_STRUCT(vote_frame, 0, &vote_frame::parts, &vote_frame::prepared)
PERDURA_WIRE_STRUCT(verdict_note, 0)
PERDURA_WIRE_STRUCT(verdict_ack, 0, &verdict_ack::target)
PERDURA_WIRE_STRUCT(ready_note, 0, &ready_note::target)
PERDURA_WIRE_STRUCT(frame, 0, &frame::timeline, &frame::at, &frame::plan, &frame::step, &frame::from,
                    &frame::observed, &frame::body)

// control.hpp: worker to coordinator. A hello starts with what decides whether the rest can be read.
PERDURA_WIRE_STRUCT(endpoint, 0, &endpoint::host, &endpoint::port)
PERDURA_WIRE_STRUCT(role_proof, 0, &role_proof::certificate, &role_proof::signature)
PERDURA_WIRE_STRUCT(challenge_request, 0, &challenge_request::who, &challenge_request::nonce)
PERDURA_WIRE_STRUCT(role_challenge, 0, &role_challenge::nonce, &role_challenge::coordinator)
PERDURA_WIRE_STRUCT(worker_hello, 0, &worker_hello::protocol, &worker_hello::type_table, &worker_hello::who,
                    &worker_hello::node, &worker_hello::name, &worker_hello::link,
                    &worker_hello::numeric_class, &worker_hello::term, &worker_hello::at, &worker_hello::plan,
                    &worker_hello::newest, &worker_hello::pid, &worker_hello::proof)
PERDURA_WIRE_ENUM(worker_phase, finished)
PERDURA_WIRE_STRUCT(heartbeat, 0, &heartbeat::who, &heartbeat::step, &heartbeat::phase,
                    &heartbeat::slots_done, &heartbeat::slot_seconds, &heartbeat::resident_bytes)
PERDURA_WIRE_STRUCT(tile_inventory, 0, &tile_inventory::tile, &tile_inventory::version,
                    &tile_inventory::complete, &tile_inventory::has_gradient)
PERDURA_WIRE_ENUM(block_status, received)
PERDURA_WIRE_STRUCT(block_inventory, 0, &block_inventory::slots, &block_inventory::status,
                    &block_inventory::tiles)
PERDURA_WIRE_STRUCT(inventory_report, 0, &inventory_report::at, &inventory_report::who,
                    &inventory_report::timeline, &inventory_report::plan, &inventory_report::newest,
                    &inventory_report::tiles, &inventory_report::partials_step, &inventory_report::blocks)
PERDURA_WIRE_STRUCT(plan_adopted, 0, &plan_adopted::at, &plan_adopted::who)
PERDURA_WIRE_STRUCT(verdict_report, 0, &verdict_report::who, &verdict_report::observed)
PERDURA_WIRE_STRUCT(link_complaint, 0, &link_complaint::who, &link_complaint::about, &link_complaint::at,
                    &link_complaint::why)
PERDURA_WIRE_STRUCT(released_report, 0, &released_report::who, &released_report::plan)
PERDURA_WIRE_STRUCT(stored_chunk, 0, &stored_chunk::hash, &stored_chunk::pack, &stored_chunk::offset,
                    &stored_chunk::stored_size, &stored_chunk::decoded_size, &stored_chunk::codec)
PERDURA_WIRE_STRUCT(chunk_report, 0, &chunk_report::who, &chunk_report::timeline, &chunk_report::at,
                    &chunk_report::step, &chunk_report::tile, &chunk_report::kind, &chunk_report::chunk,
                    &chunk_report::bases)
PERDURA_WIRE_STRUCT(final_report, 0, &final_report::who, &final_report::timeline, &final_report::step,
                    &final_report::tile_hashes)
PERDURA_WIRE_STRUCT(job_ready, 0, &job_ready::who, &job_ready::job, &job_ready::numeric_class,
                    &job_ready::tiles, &job_ready::tensors)
PERDURA_WIRE_STRUCT(worker_failure, 0, &worker_failure::who, &worker_failure::why)
PERDURA_WIRE_STRUCT(worker_report, 0, &worker_report::message)

// control.hpp: node agent and coordinator
PERDURA_WIRE_STRUCT(node_labels, 0, &node_labels::host, &node_labels::rack, &node_labels::zone)
PERDURA_WIRE_STRUCT(node_hello, 0, &node_hello::protocol, &node_hello::type_table, &node_hello::who,
                    &node_hello::name, &node_hello::host, &node_hello::devices, &node_hello::pid,
                    &node_hello::labels, &node_hello::going, &node_hello::proof)
PERDURA_WIRE_STRUCT(node_notice, 0, &node_notice::who, &node_notice::deadline_ms, &node_notice::why)
PERDURA_WIRE_STRUCT(node_heartbeat, 0, &node_heartbeat::who, &node_heartbeat::workers_alive,
                    &node_heartbeat::resident_bytes)
PERDURA_WIRE_STRUCT(child_exit, 0, &child_exit::node, &child_exit::worker, &child_exit::how,
                    &child_exit::killed)
PERDURA_WIRE_STRUCT(welcome, 0, &welcome::term, &welcome::heartbeat_ms)
PERDURA_WIRE_STRUCT(kill_worker, 0, &kill_worker::worker, &kill_worker::why)
PERDURA_WIRE_STRUCT(start_workers, 0)
PERDURA_WIRE_STRUCT(stop_node, 0, &stop_node::why)
PERDURA_WIRE_STRUCT(node_order, 0, &node_order::term, &node_order::to, &node_order::order)

// control.hpp: coordinator to worker
PERDURA_WIRE_STRUCT(job_order, 0, &job_order::job, &job_order::text, &job_order::store)
PERDURA_WIRE_STRUCT(peer, 0, &peer::who, &peer::link)
PERDURA_WIRE_STRUCT(peers_order, 0, &peers_order::peers)
PERDURA_WIRE_STRUCT(fence_order, 0, &fence_order::at, &fence_order::timeline)
PERDURA_WIRE_STRUCT(restore_source, 0, &restore_source::step, &restore_source::timeline)
PERDURA_WIRE_STRUCT(recover_order, 0, &recover_order::at, &recover_order::timeline, &recover_order::next,
                    &recover_order::settled, &recover_order::standing, &recover_order::expected,
                    &recover_order::restore, &recover_order::orphans, &recover_order::reduced)
PERDURA_WIRE_STRUCT(start_order, 0, &start_order::at)
PERDURA_WIRE_STRUCT(proposal_order, 0, &proposal_order::timeline, &proposal_order::base,
                    &proposal_order::next, &proposal_order::leavers, &proposal_order::moves)
PERDURA_WIRE_STRUCT(released_ack, 0, &released_ack::plan)
PERDURA_WIRE_STRUCT(fenced_order, 0, &fenced_order::at)
PERDURA_WIRE_STRUCT(dismiss_order, 0, &dismiss_order::job)
PERDURA_WIRE_STRUCT(order_envelope, 0, &order_envelope::term, &order_envelope::to, &order_envelope::order)

}  // namespace perdura::wire
