// The one place that knows how CAF 0.17 spells what CAF 1.x spells otherwise.
#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/error.hpp>
#include <caf/replies_to.hpp>
#include <caf/result.hpp>
#include <caf/typed_actor.hpp>

#include "actors/base/result.hpp"

namespace perdura::wire {

// One line of a typed interface: a request and its reply ...
template <class Reply, class... Request>
using rpc = typename caf::replies_to<Request...>::template with<Reply>;
// ... or a message without one.
template <class... Message>
using cast = caf::reacts_to<Message...>;

// Our errors as CAF's, and back: an error of CAF's own becomes unavailable, timeout or internal with CAF's
// text.
caf::error to_caf(const error& e);
error from_caf(const caf::error& e, const caf::actor_system_config& config);

// Registers the messages of types.hpp and the text of our errors.
void add_message_types(caf::actor_system_config& config);

}  // namespace perdura::wire
