// Bytes of the two things that leave a process: frames over the data links, messages over CAF. Decoding
// arbitrary bytes gives a value or an error, never a crash and never an allocation beyond a few times the
// input's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/base/control.hpp"
#include "actors/base/frames.hpp"
#include "actors/base/result.hpp"

namespace perdura::wire {

// Every struct that is a CAF message of its own. CAF knows them by name, in this order: append only.
#define PERDURA_WIRE_MESSAGES(X) \
  X(welcome)                     \
  X(worker_hello)                \
  X(worker_report)               \
  X(heartbeat)                   \
  X(node_hello)                  \
  X(node_heartbeat)              \
  X(child_exit)                  \
  X(order_envelope)              \
  X(node_order)                  \
  X(node_notice)                 \
  X(challenge_request)           \
  X(role_challenge)

// All of a frame but its blob.
std::vector<std::byte> encode_head(const frame& f);
// The blob, which travels as the message's body, untouched; empty for frames without one.
blob body_of(const frame& f);
// errc::corrupt if the head is malformed or a body comes with a frame that has none.
result<frame> decode_frame(std::span<const std::byte> head, blob body);

// The bytes that CAF carries. T: one of PERDURA_WIRE_MESSAGES (instantiated in codec.cpp).
template <class T>
std::string encode_message(const T& message);
template <class T>
result<T> decode_message(std::span<const std::byte> bytes);

// A fingerprint of every message's and frame's name and layout. Two processes talk only if theirs are equal:
// a hello carries it, and whoever receives another answers with what `check_release` says.
std::uint64_t type_table_hash();
// errc::version_mismatch names both sides' versions and what to do. `who`: "worker node-1/0", for the text.
result<void> check_release(std::uint32_t protocol, std::uint64_t type_table, const std::string& who);

}  // namespace perdura::wire
