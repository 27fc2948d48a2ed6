#include "actors/wire/codec.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <random>

#include "actors/wire/fields.hpp"

using namespace perdura;

namespace {

// Any value of any described type: every field random, NaNs, infinities and negative zeros among the floats.
struct filler {
  std::mt19937_64 random{1};

  template <class T>
  void fill(T& x) {
    using namespace wire::detail;
    if constexpr (is_ordinal<T>) {
      fill(x.value);
    } else if constexpr (std::is_enum_v<T>) {
      x = static_cast<T>(random() % (static_cast<unsigned>(wire::last_of<T>) + 1));
    } else if constexpr (std::is_floating_point_v<T>) {
      const T special[] = {std::numeric_limits<T>::quiet_NaN(),
                           std::numeric_limits<T>::infinity(),
                           T(-0.0),
                           std::numeric_limits<T>::denorm_min(),
                           T(1.5),
                           -std::numeric_limits<T>::infinity()};
      x = special[random() % 6];
    } else if constexpr (std::is_same_v<T, bool>) {
      x = random() % 2 == 1;
    } else if constexpr (std::is_integral_v<T>) {
      x = static_cast<T>(random());
    } else if constexpr (std::is_same_v<T, std::string>) {
      x.resize(random() % 20);
      for (char& c : x) c = static_cast<char>(random());
    } else if constexpr (is_byte_array<T>) {
      for (auto& b : x) b = static_cast<std::uint8_t>(random());
    } else if constexpr (is_a<T, std::vector>) {
      x.resize(random() % 4);
      for (auto& element : x) fill(element);
    } else if constexpr (is_a<T, std::optional>) {
      if (random() % 2 == 1) fill(x.emplace());
    } else if constexpr (is_a<T, std::variant>) {
      fill_variant(x, random() % std::variant_size_v<T>, std::make_index_sequence<std::variant_size_v<T>>{});
    } else {
      std::apply([&](auto... member) { (fill(x.*member), ...); }, wire::fields_of<T>);
      repair(x);
    }
  }

  template <class V, std::size_t... I>
  void fill_variant(V& x, std::size_t index, std::index_sequence<I...>) {
    ((index == I ? fill(x.template emplace<I>()) : void()), ...);
  }

  template <class T>
  void repair(T&) {}
  void repair(block& b) { b = {static_cast<std::uint32_t>(8 * (b.first % 100)), 1U << (b.size % 4)}; }
  void repair(plan& p) {
    p.members.resize(p.members.size() + 1);
    for (auto& holders : p.holders) {
      holders.push_back(0);
      for (auto& index : holders) index = static_cast<member_index>(index % p.members.size());
    }
  }
  void repair(worker_hello& h) { h.protocol = protocol_version, h.type_table = wire::type_table_hash(); }
  void repair(node_hello& h) { h.protocol = protocol_version, h.type_table = wire::type_table_hash(); }
};

template <class T>
T random_value(filler& f) {
  T x;
  f.fill(x);
  return x;
}

blob some_blob(std::size_t size) { return blob::take(std::vector<std::byte>(size, std::byte{7})); }

// What a message costs, or does to the reader, when its bytes are not what was sent.
template <class Decode>
void mutate_and_decode(filler& f, std::vector<std::byte> bytes, const Decode& decode) {
  for (std::size_t n = f.random() % 4; n > 0 && !bytes.empty(); --n)
    bytes[f.random() % bytes.size()] = static_cast<std::byte>(f.random());
  if (f.random() % 3 == 0) bytes.resize(f.random() % (bytes.size() + 8));
  decode(bytes);
}

std::vector<std::byte> to_bytes(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

template <class T>
void check_round_trips(filler& f) {
  for (int i = 0; i < 300; ++i) {
    const auto bytes = wire::encode_message(random_value<T>(f));
    const auto back = wire::decode_message<T>(std::as_bytes(std::span(bytes)));
    REQUIRE_MESSAGE(back.has_value(), (back ? "" : back.failure().message));
    REQUIRE(wire::encode_message(*back) == bytes);
  }
}

}  // namespace

TEST_CASE("every message survives the wire with every bit, whatever its fields hold") {
  filler f;
#define X(type) check_round_trips<type>(f);
  PERDURA_WIRE_MESSAGES(X)
#undef X
}

TEST_CASE("decoded fields are where they were") {
  filler f;
  recover_order order = random_value<recover_order>(f);
  order.orphans = {{8, 4}};
  order.restore = restore_source{step_number(7), timeline_number(2)};
  const order_envelope sent{term_number(3), {1, 2}, order};
  const auto got = wire::decode_message<order_envelope>(to_bytes(wire::encode_message(sent)));
  REQUIRE(got.has_value());
  CHECK(got->term == sent.term);
  CHECK(got->to == sent.to);
  CHECK(std::get<recover_order>(got->order) == order);
}

TEST_CASE("NaN, infinities and negative zero of a verdict keep their bits") {
  verdict v;
  v.outcome.gradient_norm = std::numeric_limits<double>::infinity();
  v.outcome.clip_scale = -0.0F;
  v.outcome.loss = -std::numeric_limits<double>::quiet_NaN();
  const auto back = wire::decode<verdict>(wire::encode(v), "a verdict");
  REQUIRE(back.has_value());
  CHECK(*back == v);
}

TEST_CASE("a frame's head and body make the same frame again, and the payload is not copied") {
  filler f;
  for (int i = 0; i < 1000; ++i) {
    auto sent = random_value<frame>(f);
    const blob payload = some_blob(1000);
    std::visit(
        [&](auto& body) {
          if constexpr (requires { body.gradient; }) body.gradient = payload;
          if constexpr (requires { body.values; }) body.values = payload;
          if constexpr (requires { body.state; }) body.state = payload;
        },
        sent.body);
    const auto head = wire::encode_head(sent);
    const blob body = wire::body_of(sent);
    CHECK(body.size() == (sent.body.index() < 4 ? 1000U : 0U));
    const auto got = wire::decode_frame(head, body);
    REQUIRE(got.has_value());
    CHECK(wire::encode_head(*got) == head);
    CHECK(wire::body_of(*got).data() == body.data());
  }
}

TEST_CASE("a body that comes with a frame without one is refused") {
  frame f;
  f.body = verdict_note{};
  const auto got = wire::decode_frame(wire::encode_head(f), some_blob(3));
  REQUIRE_FALSE(got.has_value());
  CHECK(got.failure().code == errc::corrupt);
}

TEST_CASE("values that no sender writes are errors that say where") {
  auto refused = [](auto type, auto change) {
    using T = decltype(type);
    auto bytes = wire::encode(T{});
    change(bytes);
    const auto got = wire::decode<T>(bytes, "it");
    REQUIRE_FALSE(got.has_value());
    return got.failure().message;
  };
  // heartbeat: incarnation 16, step 8, then the phase.
  CHECK(refused(heartbeat{}, [](auto& b) { b[24] = std::byte{100}; }) ==
        "cannot read it: an enum value is out of range (byte 25 of 49)");
  CHECK(refused(child_exit{}, [](auto& b) { b.back() = std::byte{2}; }).find("a bool is neither") !=
        std::string::npos);
  CHECK(refused(child_exit{}, [](auto& b) { b.push_back(std::byte{0}); }).find("left over") !=
        std::string::npos);
  CHECK(refused(child_exit{}, [](auto& b) { b.pop_back(); }).find("ends too early") != std::string::npos);
  CHECK(refused(peers_order{}, [](auto& b) { b[1] = std::byte{1}; }).find("beyond the input") !=
        std::string::npos);
  CHECK(refused(peers_order{}, [](auto& b) { b[3] = std::byte{0xff}; }).find("over its limit") !=
        std::string::npos);
  CHECK(refused(worker_report{}, [](auto& b) { b[0] = std::byte{99}; }).find("index") != std::string::npos);
}

TEST_CASE("a plan whose holders are no members, or a block that is not aligned, is refused on reading") {
  plan p;
  p.members.resize(2);
  p.holders = {{0, 1}, {1}};
  CHECK(wire::decode<plan>(wire::encode(p), "a plan").has_value());
  p.holders = {{0, 2}};
  CHECK_FALSE(wire::decode<plan>(wire::encode(p), "a plan").has_value());
  p.holders = {{}};
  CHECK_FALSE(wire::decode<plan>(wire::encode(p), "a plan").has_value());
  CHECK_FALSE(wire::decode<block>(wire::encode(block{2, 4}), "a block").has_value());
  CHECK_FALSE(wire::decode<block>(wire::encode(block{0x80000000U, 0x80000000U}), "a block").has_value());
}

TEST_CASE("random bytes and mutated messages never crash the decoder") {
  filler f;
  int accepted = 0;
  auto as_frame = [&](std::span<const std::byte> bytes) {
    accepted += wire::decode_frame(bytes, {}) ? 1 : 0;
  };
  for (int i = 0; i < 60'000; ++i) mutate_and_decode(f, wire::encode_head(random_value<frame>(f)), as_frame);
#define X(type)                                                   \
  for (int i = 0; i < 5'000; ++i)                                 \
    mutate_and_decode(                                            \
        f, to_bytes(wire::encode_message(random_value<type>(f))), \
        [&](std::span<const std::byte> bytes) { accepted += wire::decode_message<type>(bytes) ? 1 : 0; });
  PERDURA_WIRE_MESSAGES(X)
#undef X
  std::vector<std::byte> noise(64);
  for (int i = 0; i < 20'000; ++i) {
    for (auto& b : noise) b = static_cast<std::byte>(f.random());
    as_frame(noise);
    (void)wire::decode_message<order_envelope>(noise);
  }
  // Both outcomes occurred, or the test tests nothing.
  CHECK(accepted > 10'000);
  CHECK(accepted < 100'000);
}

TEST_CASE("a hello of another release can still be read as far as it takes to refuse it by name") {
  filler f;
  auto hello = random_value<worker_hello>(f);
  hello.type_table += 1;
  auto bytes = wire::encode_message(hello);
  bytes.resize(bytes.size() / 2);  // its rest is laid out as that release likes
  const auto got = wire::decode_message<worker_hello>(std::as_bytes(std::span(bytes)));
  REQUIRE(got.has_value());
  CHECK(got->type_table == hello.type_table);
  CHECK(got->who.is_none());
  const auto verdict = wire::check_release(got->protocol, got->type_table, "worker node-1/0");
  REQUIRE_FALSE(verdict.has_value());
  CHECK(verdict.failure().code == errc::version_mismatch);
  CHECK(verdict.failure().message.find("worker node-1/0") != std::string::npos);
  CHECK(wire::check_release(protocol_version, wire::type_table_hash(), "it").has_value());
}

TEST_CASE("a layout's description changes with the type and order of its fields") {
  auto text = [](auto type) {
    std::string out;
    wire::describe<decltype(type)>(out);
    return out;
  };
  CHECK(text(era{}) == "(u32u32)");
  CHECK(text(plan_member{}) == "((u64u64)[(u32u32)])");
  CHECK(text(node_order{}) == "(u32(u64u64)<((u64u64)s)|()|(s)|>)");
}
