#include "storage/interchange/import.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "storage/checkpoint_reader.hpp"
#include "storage/checkpoint_writer.hpp"
#include "storage/interchange/half.hpp"
#include "storage/safetensors/tensor_folder.hpp"

namespace perdura::interchange {

namespace fs = std::filesystem;
using safetensors::dtype;

namespace {

constexpr std::uint64_t compared_at_once = 65536;

bool is_floating(dtype type) {
  return type == dtype::f32 || type == dtype::f64 || type == dtype::f16 || type == dtype::bf16;
}

template <class From, class Convert>
void convert(std::span<const std::byte> bytes, std::span<float> to, Convert one) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    to[i] = one(value);
  }
}

void to_floats(dtype type, std::span<const std::byte> bytes, std::span<float> to) {
  if (type == dtype::f32) std::memcpy(to.data(), bytes.data(), bytes.size());
  if (type == dtype::f64) convert<double>(bytes, to, [](double v) { return static_cast<float>(v); });
  if (type == dtype::f16) convert<std::uint16_t>(bytes, to, float_of_f16);
  if (type == dtype::bf16) convert<std::uint16_t>(bytes, to, float_of_bf16);
}

// The file's tensors as the model's flat vector.
class flat_source {
 public:
  flat_source(const safetensors::tensor_folder& files, std::vector<outer_tensor> wanted)
      : files_(files), wanted_(std::move(wanted)), fixed_(wanted_.size()) {}

  // The values of a tensor that the file does not have.
  void provide(const std::string& name, std::vector<float> values) {
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i].name == name) fixed_[i] = std::move(values);
  }

  // One line for each tensor that does not fit.
  std::vector<std::string> differences() const {
    std::vector<std::string> lines;
    std::map<std::string_view, bool> known;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const auto& w = wanted_[i];
      known[w.name] = true;
      const auto* t = files_.find(w.name);
      if (t == nullptr && fixed_[i].empty())
        lines.push_back("missing: " + w.name + " " + safetensors::shape_text(w.shape));
      else if (t != nullptr && t->shape != w.shape)
        lines.push_back("wrong shape: " + w.name + " is " + safetensors::shape_text(t->shape) +
                        ", the model's is " + safetensors::shape_text(w.shape));
      else if (t != nullptr && !is_floating(t->type))
        lines.push_back("wrong type: " + w.name + " is " + to_string(t->type) +
                        "; F32, F64, F16 and BF16 are read");
    }
    for (const auto& name : files_.names())
      if (!known.contains(name)) lines.push_back("unknown: " + name);
    return lines;
  }

  // Which tensor each part of the flat vector comes from, and that the copies of a part are equal. Errors:
  // internal when the parts leave gaps; corrupt for copies that differ.
  result<void> arrange(std::uint64_t elements) {
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      std::uint64_t offset = 0;
      for (const auto& p : wanted_[i].pieces) {
        const auto [first, is_new] = parts_.emplace(p.first, part{p.count, i, offset});
        if (!is_new)
          if (auto same = compare(p, first->second, i, offset); !same) return same;
        offset += p.count;
      }
    }
    std::uint64_t next = 0;
    for (const auto& [first, p] : parts_) {
      if (first != next) break;
      next += p.count;
    }
    if (next == elements) return {};
    return error{errc::internal,
                 "the model's tensors do not make up its " + std::to_string(elements) + " parameters"};
  }

  // Elements [first, first + to.size()).
  result<void> read(std::uint64_t first, std::span<float> to) const {
    auto at = std::prev(parts_.upper_bound(first));
    while (!to.empty()) {
      const auto& [begins, p] = *at++;
      const auto skipped = first - begins;
      const auto n = std::min<std::uint64_t>(to.size(), p.count - skipped);
      if (auto done = read(p.tensor, p.offset + skipped, to.first(n)); !done) return done;
      to = to.subspan(n);
      first += n;
    }
    return {};
  }

 private:
  struct part {
    std::uint64_t count;
    std::size_t tensor;
    std::uint64_t offset;  // in its elements
  };

  result<void> read(std::size_t tensor, std::uint64_t offset, std::span<float> to) const {
    const auto& name = wanted_[tensor].name;
    if (const auto* t = files_.find(name)) {
      const auto width = bytes_of(t->type);
      std::vector<std::byte> bytes(to.size() * width);
      if (auto done = files_.read(name, offset * width, bytes); !done) return done;
      to_floats(t->type, bytes, to);
    } else {
      std::copy_n(fixed_[tensor].begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    }
    if (std::ranges::all_of(to, [](float v) { return std::isfinite(v); })) return {};
    return error{errc::corrupt, "tensor " + name + " holds values that are no finite floats"};
  }

  result<void> compare(const piece& p, const part& with, std::size_t tensor, std::uint64_t offset) const {
    const auto& name = wanted_[tensor].name;
    const auto& other = wanted_[with.tensor].name;
    if (p.count != with.count) return error{errc::internal, name + " is no copy of " + other};
    std::vector<float> a, b;
    for (std::uint64_t at = 0; at < p.count; at += compared_at_once) {
      a.resize(std::min(compared_at_once, p.count - at));
      b.resize(a.size());
      if (auto done = read(tensor, offset + at, a); !done) return done;
      if (auto done = read(with.tensor, with.offset + at, b); !done) return done;
      if (a != b)
        return error{errc::corrupt,
                     name + " and " + other + " differ: here all blocks share one time and label embedding"};
    }
    return {};
  }

  const safetensors::tensor_folder& files_;
  std::vector<outer_tensor> wanted_;
  std::vector<std::vector<float>> fixed_;  // instead of a tensor that is not there
  std::map<std::uint64_t, part> parts_;    // by first element
};

struct chosen_names {
  format as;
  std::vector<outer_tensor> wanted;
  std::optional<std::vector<float>> positions;  // for a file of diffusers that has none
};

std::size_t known_names(const safetensors::tensor_folder& files, const std::vector<outer_tensor>& tensors) {
  return static_cast<std::size_t>(
      std::ranges::count_if(tensors, [&](const auto& t) { return files.find(t.name) != nullptr; }));
}

// Ours or diffusers', whichever more of the names are.
result<chosen_names> choose_names(const safetensors::tensor_folder& files, const import_options& o) {
  chosen_names plain{format::plain, plain_tensors(o.tensors), {}};
  const auto shape = dit_shape_of(o.model, o.tensors);
  if (!shape) return plain;
  auto theirs = diffusers_tensors(*shape, o.tensors);
  if (!theirs || known_names(files, plain.wanted) >= known_names(files, *theirs)) return plain;
  chosen_names out{format::diffusers, *std::move(theirs), {}};
  if (files.find(positions_name) == nullptr) out.positions = fixed_positions(*shape);
  return out;
}

result<void> check_fit(const flat_source& source, const import_options& o) {
  const auto lines = source.differences();
  if (lines.empty()) return {};
  std::string text = o.from.string() + " does not fit the model of the job file, " +
                     std::to_string(lines.size()) + (lines.size() == 1 ? " tensor:" : " tensors:");
  for (const auto& line : lines) text += "\n  " + line;
  return error{errc::invalid_argument, text};
}

storage::manifest empty_manifest(const import_options& o) {
  storage::manifest m;
  m.job = o.job;
  m.job_text = o.job_text;
  m.created_by = o.created_by;
  m.created_unix_ms = o.created_unix_ms;
  m.tiles = o.tiles;
  m.tensors = o.tensors;
  for (const auto kind : storage::all_kinds) m.arrays.push_back({kind, sizeof(float)});
  return m;
}

result<void> write_tiles(const flat_source& source, const import_options& o, storage::manifest& m) {
  storage::checkpoint_writer writer(o.store, o.who);
  writer.begin(m.key());
  std::vector<float> state;
  for (std::uint32_t i = 0; i < m.tiles.size(); ++i) {
    const auto& t = m.tiles[i];
    state.assign(std::size_t{t.size} * storage::all_kinds.size(), 0.0F);
    const std::span all(state);
    if (auto done = source.read(t.first, all.first(t.size)); !done) return done;
    std::ranges::copy(all.first(t.size), all.last(t.size).begin());  // the average, which comes last
    auto chunks = writer.append_tile(tile_id(i), std::as_bytes(all));
    if (!chunks) return chunks.failure();
    m.chunks.insert(m.chunks.end(), chunks->begin(), chunks->end());
    for (const auto& c : *chunks)
      for (auto& base : writer.bases_of(c.record)) m.bases.push_back(std::move(base));
  }
  storage::sort_chunks(m);
  return writer.finish();
}

// Chunks are durable, their headers read back: then the manifest, and with it the checkpoint.
result<void> commit(const storage::manifest& m, const fs::path& store) {
  if (auto fine = storage::validate(m); !fine) return fine;
  if (auto there = storage::checkpoint_reader(store, m).check_headers(); !there) return there;
  return storage::object_folder(store).put_if_absent(storage::manifest_object(m.key()), storage::encode(m));
}

fs::path weights_in(const fs::path& from) {
  std::error_code failed;
  return fs::is_directory(from / "transformer", failed) ? from / "transformer" : from;
}

}  // namespace

result<imported> import_weights(const import_options& o) {
  storage::manifest m = empty_manifest(o);
  if (!storage::is_job_name(o.job) || o.tiles.empty())
    return error{errc::invalid_argument,
                 "'" + o.job.substr(0, 64) + "' is no job's name, or its model is empty"};
  const storage::object_folder objects(o.store);
  const auto taken = objects.exists(storage::manifest_object(m.key()));
  if (!taken) return taken.failure();
  if (*taken)
    return error{errc::already_exists,
                 "there is a checkpoint " + to_string(m.key()) + " in " + o.store.string()};
  const auto files = safetensors::tensor_folder::open(weights_in(o.from));
  if (!files) return files.failure();
  auto names = choose_names(*files, o);
  if (!names) return names.failure();
  const auto tensors = names->wanted.size();
  flat_source source(*files, std::move(names->wanted));
  if (names->positions) source.provide(positions_name, *names->positions);
  if (auto fits = check_fit(source, o); !fits) return fits.failure();
  if (auto fits = source.arrange(o.tiles.back().first + o.tiles.back().size); !fits) return fits.failure();
  if (auto written = write_tiles(source, o, m); !written) return written.failure();
  if (auto done = commit(m, o.store); !done) return done.failure();
  return imported{m.key(), names->as, tensors, m.total_bytes(), names->positions.has_value()};
}

}  // namespace perdura::interchange
