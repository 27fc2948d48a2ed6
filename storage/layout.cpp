#include "storage/layout.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "storage/chunk.hpp"

namespace perdura::storage {
namespace {

constexpr std::size_t job_name_max = 64;
constexpr std::string_view pack_suffix = ".pack";
constexpr std::string_view manifest_suffix = ".json";

std::string padded(std::uint64_t n, int width) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llu", width, static_cast<unsigned long long>(n));
  return text;
}

// Digits alone, and no more than fit.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number n{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

std::string checkpoint_object(const char* folder, const checkpoint_key& key) {
  return std::string(folder) + "/" + key.job + "/" + padded(key.timeline.value, 6) + "-" +
         padded(key.step.value, 12) + std::string(manifest_suffix);
}

}  // namespace

std::string to_string(const checkpoint_key& key) {
  return key.job + " step " + to_string(key.step) + " (timeline " + to_string(key.timeline) + ")";
}

std::string to_string(const pack_name& name) {
  return to_string(name.who) + "-" + padded(name.sequence, 6) + std::string(pack_suffix);
}

std::optional<pack_name> parse_pack_name(std::string_view text) {
  constexpr std::size_t id_digits = 32;
  if (text.size() > 64 || !text.ends_with(pack_suffix)) return std::nullopt;
  const std::string_view stem = text.substr(0, text.size() - pack_suffix.size());
  if (stem.size() <= id_digits || stem[id_digits] != '-') return std::nullopt;
  const auto sequence = parse_number<std::uint32_t>(stem.substr(id_digits + 1));
  if (!sequence) return std::nullopt;
  const pack_name name{parse_incarnation(std::string(stem.substr(0, id_digits))), *sequence};
  // The one spelling only: two names for a file would be two packs.
  if (name.who.is_none() || to_string(name) != text) return std::nullopt;
  return name;
}

bool is_job_name(std::string_view job) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !job.empty() && job.size() <= job_name_max && job.front() != '.' &&
         std::all_of(job.begin(), job.end(), is_allowed);
}

std::filesystem::path packs_folder(const std::filesystem::path& store) { return store / "packs"; }

std::string manifest_object(const checkpoint_key& key) { return checkpoint_object("manifests", key); }
std::string tombstone_object(const checkpoint_key& key) { return checkpoint_object("tombstones", key); }

std::optional<checkpoint_key> parse_checkpoint_object(std::string_view name) {
  const auto first = name.find('/');
  const auto second = first == std::string_view::npos ? first : name.find('/', first + 1);
  if (second == std::string_view::npos || !name.ends_with(manifest_suffix)) return std::nullopt;
  const std::string_view folder = name.substr(0, first);
  std::string_view stem = name.substr(second + 1);
  stem.remove_suffix(std::min(stem.size(), manifest_suffix.size()));
  const auto dash = stem.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto timeline = parse_number<std::uint32_t>(stem.substr(0, dash));
  const auto step = parse_number<std::uint64_t>(stem.substr(dash + 1));
  if (!timeline || !step) return std::nullopt;
  checkpoint_key key{std::string(name.substr(first + 1, second - first - 1)), timeline_number(*timeline),
                     step_number(*step)};
  if (!is_job_name(key.job)) return std::nullopt;
  const bool is_canonical =
      folder == "manifests" ? manifest_object(key) == name : tombstone_object(key) == name;
  if (!is_canonical) return std::nullopt;
  return key;
}

const char* to_string(chunk_kind kind) {
  switch (kind) {
    case chunk_kind::parameters: return "parameters";
    case chunk_kind::first_moment: return "first_moment";
    case chunk_kind::second_moment: return "second_moment";
    case chunk_kind::ema: return "ema";
  }
  return "unknown";
}

const char* to_string(chunk_codec codec) {
  switch (codec) {
    case chunk_codec::raw: return "raw";
    case chunk_codec::planes: return "planes";
    case chunk_codec::delta: return "delta";
  }
  return "unknown";
}

std::optional<chunk_kind> parse_kind(std::string_view text) {
  for (const chunk_kind kind : all_kinds)
    if (text == to_string(kind)) return kind;
  return std::nullopt;
}

std::optional<chunk_kind> parse_kind(std::uint8_t number) {
  for (const chunk_kind kind : all_kinds)
    if (number == static_cast<std::uint8_t>(kind)) return kind;
  return std::nullopt;
}

std::optional<chunk_codec> parse_codec(std::string_view text) {
  for (const chunk_codec codec : all_codecs)
    if (text == to_string(codec)) return codec;
  return std::nullopt;
}

std::optional<chunk_codec> parse_codec(std::uint8_t number) {
  for (const chunk_codec codec : all_codecs)
    if (number == static_cast<std::uint8_t>(codec)) return codec;
  return std::nullopt;
}

}  // namespace perdura::storage
