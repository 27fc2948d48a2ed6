#include <doctest/doctest.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include "actors/wire/compat.hpp"
#include "actors/wire/types.hpp"

using namespace perdura;

TEST_CASE("CAF carries our messages, and delivers an unreadable one empty") {
  caf::actor_system_config config;
  wire::add_message_types(config);
  caf::actor_system system(config);
  child_exit sent{{1, 2}, {3, 4}, "signal 9", true};
  std::vector<char> bytes;
  caf::binary_serializer sink(system, bytes);
  REQUIRE_FALSE(sink(caf::make_message(sent)));
  caf::message got;
  caf::binary_deserializer source(system, bytes);
  REQUIRE_FALSE(source(got));
  REQUIRE(got.match_elements<child_exit>());
  CHECK(got.get_as<child_exit>(0).how == "signal 9");

  bytes.back() = 7;  // the bool
  const auto before = wire::unreadable_messages();
  caf::binary_deserializer broken(system, bytes);
  // CAF 0.17 swallows an element's failure and delivers an empty message: harden()'s default handler refuses
  // it.
  caf::message unreadable;
  CHECK_FALSE(broken(unreadable));
  CHECK(unreadable.empty());
  CHECK(wire::unreadable_messages() == before + 1);
}

TEST_CASE("our errors keep code and text through CAF's") {
  caf::actor_system_config config;
  wire::add_message_types(config);
  const auto e = wire::to_caf({errc::refused, "worker x is fenced"});
  const auto back = wire::from_caf(e, config);
  CHECK(back.code == errc::refused);
  CHECK(back.message == "worker x is fenced");
  CHECK(config.render(e).find("worker x is fenced") != std::string::npos);
  CHECK(wire::from_caf(caf::sec::request_timeout, config).code == errc::timeout);
}
