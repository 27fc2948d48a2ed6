// The text of a manifest. Reading collects the first error instead of throwing, so that the list of fields
// reads like the format.
#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <cstdio>

#include "storage/manifest.hpp"

namespace perdura::storage {
namespace {

namespace json = boost::json;

constexpr std::string_view format_name = "perdura-manifest";
constexpr std::string_view hash_line = "\nsha256 ";

std::string hex(std::uint64_t n) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(n));
  return text;
}
std::string hex(double n) { return hex(std::bit_cast<std::uint64_t>(n)); }
std::string hex(float n) { return hex(std::uint64_t{std::bit_cast<std::uint32_t>(n)}); }

json::array write(const era& e) { return {e.term.value, e.count}; }
json::array write(const plan_id& p) { return {p.at.term.value, p.at.count, p.sequence}; }

json::object write(const verdict& v) {
  const step_outcome& o = v.outcome;
  return {{"step", v.step.value},
          {"timeline", v.timeline.value},
          {"plan", write(v.plan)},
          {"next_plan", write(v.next_plan)},
          {"gradient_norm", hex(o.gradient_norm)},
          {"clip_scale", hex(o.clip_scale)},
          {"learning_rate", hex(o.learning_rate)},
          {"skipped", o.skipped},
          {"optimizer_time", o.optimizer_time},
          {"loss", hex(o.loss)},
          {"skips_in_a_row", o.skips_in_a_row}};
}

// The names of packs are long and few.
std::vector<std::string_view> packs_of(const manifest& m) {
  std::vector<std::string_view> packs;
  for (const auto& c : m.chunks) packs.push_back(c.record.pack);
  for (const auto& r : m.bases) packs.push_back(r.pack);
  std::sort(packs.begin(), packs.end());
  packs.erase(std::unique(packs.begin(), packs.end()), packs.end());
  return packs;
}

json::array write(const chunk_record& r, const std::vector<std::string_view>& packs) {
  const auto pack = std::lower_bound(packs.begin(), packs.end(), r.pack) - packs.begin();
  return {to_string(r.codec),
          to_string(r.hash),
          pack,
          r.offset,
          r.stored_size,
          r.decoded_size,
          r.base ? to_string(*r.base) : std::string()};
}

json::array write(const tile_chunk& c, const std::vector<std::string_view>& packs) {
  json::array row{c.tile.value, to_string(c.kind)};
  for (auto& item : write(c.record, packs)) row.push_back(std::move(item));
  return row;
}

template <class Items, class Write>
json::array write_all(const Items& items, Write write_one) {
  json::array out;
  out.reserve(items.size());
  for (const auto& item : items) out.emplace_back(write_one(item));
  return out;
}

std::string encode_body(const manifest& m) {
  const auto packs = packs_of(m);
  const json::object o{
      {"format", format_name},
      {"version", manifest_format_version},
      {"job", m.job},
      {"created_by", m.created_by},
      {"created_unix_ms", m.created_unix_ms},
      {"era", write(m.at)},
      {"verdict", write(m.standing)},
      {"numeric_class", hex(m.numeric_class)},
      {"total_bytes", m.total_bytes()},
      {"job_text", m.job_text},
      {"arrays", write_all(m.arrays,
                           [](const auto& a) {
                             return json::array{to_string(a.kind), a.element_bytes};
                           })},
      {"tiles", write_all(m.tiles,
                          [](const auto& t) {
                            return json::array{t.first, t.size, t.stage};
                          })},
      {"tensors",
       write_all(m.tensors,
                 [](const auto& t) {
                   return json::array{t.name, json::array(t.shape.begin(), t.shape.end()), t.first};
                 })},
      {"packs", write_all(packs, [](const auto name) { return json::string(name); })},
      {"chunks", write_all(m.chunks, [&](const auto& c) { return write(c, packs); })},
      {"bases", write_all(m.bases, [&](const auto& r) { return write(r, packs); })}};
  return json::serialize(o);
}

// Reads values; the first one that does not fit is remembered, and all later ones come back empty.
class value_reader {
 public:
  const std::string& failure() const { return failure_; }
  bool has_failed() const { return !failure_.empty(); }
  void fail(std::string_view field, std::string_view why) {
    if (failure_.empty()) failure_ = std::string(field) + " " + std::string(why);
  }

  const json::value& field(const json::value& object, std::string_view name) {
    static const json::value none;
    if (has_failed()) return none;
    const json::object* o = object.if_object();
    const json::value* v = o == nullptr ? nullptr : o->if_contains(name);
    if (v == nullptr) fail(name, "is missing");
    return v == nullptr ? none : *v;
  }

  // An array of `size` items, or, with size 0, of at most `size_max`.
  const json::array& items(const json::value& v, std::string_view name, std::size_t size,
                           std::size_t size_max = 0) {
    static const json::array none;
    if (has_failed()) return none;
    const json::array* a = v.if_array();
    if (a == nullptr || (size != 0 ? a->size() != size : a->size() > size_max)) {
      fail(name, size != 0 ? "is not a list of " + std::to_string(size)
                           : "is not a list of at most " + std::to_string(size_max));
      return none;
    }
    return *a;
  }

  template <class Number>
  Number number(const json::value& v, std::string_view name) {
    if (has_failed()) return {};
    if (!v.is_number()) return fail(name, "is not a number"), Number{};
    boost::system::error_code inexact;
    const Number n = v.is_double() ? Number{} : v.to_number<Number>(inexact);
    if (v.is_double() || inexact) return fail(name, "is not a whole number in its range"), Number{};
    return n;
  }

  std::string_view text(const json::value& v, std::string_view name, std::size_t size_max) {
    if (has_failed()) return {};
    const json::string* s = v.if_string();
    if (s == nullptr || s->size() > size_max)
      return fail(name, "is not a text of at most " + std::to_string(size_max) + " bytes"),
             std::string_view{};
    return {s->data(), s->size()};
  }

  bool truth(const json::value& v, std::string_view name) {
    if (has_failed()) return false;
    if (!v.is_bool()) return fail(name, "is neither true nor false"), false;
    return v.get_bool();
  }

  std::uint64_t bits(const json::value& v, std::string_view name) {
    const std::string_view digits = text(v, name, 16);
    if (has_failed()) return 0;
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != digits.npos)
      return fail(name, "is not 16 hexadecimal digits"), 0;
    return std::stoull(std::string(digits), nullptr, 16);
  }

  template <class T>
  T unwrap(std::optional<T> v, std::string_view name) {
    if (!v) fail(name, "has no known value");
    return v.value_or(T{});
  }

 private:
  std::string failure_;
};

era read_era(value_reader& r, const json::value& v, std::string_view name) {
  const auto& a = r.items(v, name, 2);
  if (r.has_failed()) return {};
  return {term_number(r.number<std::uint32_t>(a[0], name)), r.number<std::uint32_t>(a[1], name)};
}

plan_id read_plan(value_reader& r, const json::value& v, std::string_view name) {
  const auto& a = r.items(v, name, 3);
  if (r.has_failed()) return {};
  return {{term_number(r.number<std::uint32_t>(a[0], name)), r.number<std::uint32_t>(a[1], name)},
          r.number<std::uint32_t>(a[2], name)};
}

float read_float(value_reader& r, const json::value& v, std::string_view name) {
  const std::uint64_t bits = r.bits(v, name);
  if (bits > UINT32_MAX) r.fail(name, "has more than 32 bits");
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

verdict read_verdict(value_reader& r, const json::value& v) {
  verdict out;
  out.step = step_number(r.number<std::uint64_t>(r.field(v, "step"), "step"));
  out.timeline = timeline_number(r.number<std::uint32_t>(r.field(v, "timeline"), "timeline"));
  out.plan = read_plan(r, r.field(v, "plan"), "plan");
  out.next_plan = read_plan(r, r.field(v, "next_plan"), "next_plan");
  step_outcome& o = out.outcome;
  o.gradient_norm = std::bit_cast<double>(r.bits(r.field(v, "gradient_norm"), "gradient_norm"));
  o.clip_scale = read_float(r, r.field(v, "clip_scale"), "clip_scale");
  o.learning_rate = read_float(r, r.field(v, "learning_rate"), "learning_rate");
  o.skipped = r.truth(r.field(v, "skipped"), "skipped");
  o.optimizer_time = r.number<std::uint64_t>(r.field(v, "optimizer_time"), "optimizer_time");
  o.loss = std::bit_cast<double>(r.bits(r.field(v, "loss"), "loss"));
  o.skips_in_a_row = r.number<std::uint32_t>(r.field(v, "skips_in_a_row"), "skips_in_a_row");
  return out;
}

constexpr std::size_t record_items = 7;

// From its first item on.
chunk_record read_record(value_reader& r, const json::value* a, const std::vector<std::string>& packs,
                         std::string_view name) {
  chunk_record record;
  record.codec = r.unwrap(parse_codec(r.text(a[0], name, 32)), name);
  record.hash = r.unwrap(parse_hash(r.text(a[1], name, 64)), name);
  const auto pack = r.number<std::size_t>(a[2], name);
  if (pack >= packs.size()) return r.fail(name, "name a pack that there is not"), chunk_record{};
  record.pack = packs[pack];
  record.offset = r.number<std::uint64_t>(a[3], name);
  record.stored_size = r.number<std::uint64_t>(a[4], name);
  record.decoded_size = r.number<std::uint64_t>(a[5], name);
  if (const auto base = r.text(a[6], name, 64); !base.empty()) record.base = r.unwrap(parse_hash(base), name);
  return record;
}

tile_chunk read_chunk(value_reader& r, const json::value& v, const std::vector<std::string>& packs) {
  const auto& a = r.items(v, "chunks", 2 + record_items);
  if (r.has_failed()) return {};
  tile_chunk c;
  c.tile = tile_id(r.number<std::uint32_t>(a[0], "chunks"));
  c.kind = r.unwrap(parse_kind(r.text(a[1], "chunks", 32)), "chunks: kind");
  c.record = read_record(r, &a[2], packs, "chunks");
  return c;
}

tensor_entry read_tensor(value_reader& r, const json::value& v) {
  const auto& a = r.items(v, "tensors", 3);
  if (r.has_failed()) return {};
  tensor_entry t;
  t.name = r.text(a[0], "tensors", 256);
  for (const auto& n : r.items(a[1], "tensors", 0, tensor_rank_max))
    t.shape.push_back(r.number<std::uint64_t>(n, "tensors"));
  t.first = r.number<std::uint64_t>(a[2], "tensors");
  return t;
}

manifest read_manifest(value_reader& r, const json::value& v) {
  manifest m;
  m.job = r.text(r.field(v, "job"), "job", 64);
  m.created_by = r.text(r.field(v, "created_by"), "created_by", 256);
  m.created_unix_ms = r.number<std::uint64_t>(r.field(v, "created_unix_ms"), "created_unix_ms");
  m.at = read_era(r, r.field(v, "era"), "era");
  m.standing = read_verdict(r, r.field(v, "verdict"));
  m.numeric_class = r.bits(r.field(v, "numeric_class"), "numeric_class");
  m.job_text = r.text(r.field(v, "job_text"), "job_text", job_text_bytes_max);
  for (const auto& item : r.items(r.field(v, "arrays"), "arrays", 0, all_kinds.size())) {
    const auto& a = r.items(item, "arrays", 2);
    if (r.has_failed()) break;
    m.arrays.push_back({r.unwrap(parse_kind(r.text(a[0], "arrays", 32)), "arrays: kind"),
                        r.number<std::uint32_t>(a[1], "arrays")});
  }
  for (const auto& item : r.items(r.field(v, "tiles"), "tiles", 0, manifest_tiles_max)) {
    const auto& a = r.items(item, "tiles", 3);
    if (r.has_failed()) break;
    m.tiles.push_back({r.number<std::uint64_t>(a[0], "tiles"), r.number<std::uint32_t>(a[1], "tiles"),
                       r.number<std::uint32_t>(a[2], "tiles")});
  }
  for (const auto& item : r.items(r.field(v, "tensors"), "tensors", 0, manifest_tensors_max))
    m.tensors.push_back(read_tensor(r, item));
  const std::size_t chunks_max = manifest_tiles_max * all_kinds.size();
  std::vector<std::string> packs;
  for (const auto& item : r.items(r.field(v, "packs"), "packs", 0, chunks_max))
    packs.emplace_back(r.text(item, "packs", 64));
  for (const auto& item : r.items(r.field(v, "chunks"), "chunks", 0, chunks_max)) {
    m.chunks.push_back(read_chunk(r, item, packs));
    if (r.has_failed()) break;
  }
  for (const auto& item : r.items(r.field(v, "bases"), "bases", 0, chunks_max * chain_length_max)) {
    const auto& a = r.items(item, "bases", record_items);
    if (r.has_failed()) break;
    m.bases.push_back(read_record(r, &a[0], packs, "bases"));
  }
  return m;
}

error corrupt(const std::string& why) { return {errc::corrupt, "the manifest is damaged: " + why}; }

// The body, if the text is a body and the hash of it.
result<std::string_view> checked_body(std::string_view text) {
  const std::size_t trailer_bytes = hash_line.size() + 64 + 1;
  if (text.size() < trailer_bytes || text.size() > manifest_bytes_max)
    return corrupt("it has " + std::to_string(text.size()) + " bytes");
  const std::string_view body = text.substr(0, text.size() - trailer_bytes);
  const std::string_view trailer = text.substr(body.size());
  if (!trailer.starts_with(hash_line) || trailer.back() != '\n')
    return corrupt("it does not end with its hash");
  if (trailer.substr(hash_line.size(), 64) != to_string(hash_of(body)))
    return corrupt("its hash does not fit");
  return body;
}

}  // namespace

std::string encode(const manifest& m) {
  std::string text = encode_body(m);
  const std::string hash = to_string(hash_of(text));
  text += hash_line;
  text += hash;
  text += '\n';
  return text;
}

result<manifest> decode_manifest(std::string_view text) {
  auto body = checked_body(text);
  if (!body) return body.failure();
  boost::system::error_code syntax;
  const json::value v = json::parse({body->data(), body->size()}, syntax);
  if (syntax) return corrupt("it is not JSON: " + syntax.message());
  value_reader r;
  if (r.text(r.field(v, "format"), "format", 64) != format_name)
    return corrupt("its format is not " + std::string(format_name));
  const auto version = r.number<std::uint32_t>(r.field(v, "version"), "version");
  if (r.has_failed()) return corrupt(r.failure());
  if (version != manifest_format_version)
    return error{errc::version_mismatch, "the manifest has format version " + std::to_string(version) +
                                             ", this build reads version " +
                                             std::to_string(manifest_format_version)};
  manifest m = read_manifest(r, v);
  if (r.has_failed()) return corrupt(r.failure());
  if (auto valid = validate(m); !valid) return corrupt(valid.failure().message);
  // Refuses unknown fields, other orders and spellings, and a total that is not the sum.
  if (encode_body(m) != *body) return corrupt("it is not spelled as this build spells it");
  return m;
}

}  // namespace perdura::storage
