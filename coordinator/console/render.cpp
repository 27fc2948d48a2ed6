#include "coordinator/console/render.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <ostream>

namespace perdura::console {

namespace {

namespace json = boost::json;

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t at = 0;
  for (; bytes >= 1024 && at + 1 < units.size(); ++at) bytes /= 1024;
  return format(at == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[at]);
}

std::string duration_text(double ms) {
  if (ms < 1000) return format(ms < 100 ? "%.1f ms" : "%.0f ms", ms);
  const auto seconds = static_cast<long long>(ms / 1000);
  if (seconds < 60) return format("%.1f s", ms / 1000);
  if (seconds < 3600) return format("%lld min %02lld s", seconds / 60, seconds % 60);
  if (seconds < 86400) return format("%lld h %02lld min", seconds / 3600, seconds / 60 % 60);
  return format("%lld d %02lld h", seconds / 86400, seconds / 3600 % 24);
}

std::string date_text(std::int64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  const auto size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return std::string(text, size) + format(".%03d", static_cast<int>(unix_ms % 1000));
}

std::string list_text(const json::array& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : " ") + to_text(item, unit::text);
  return text;
}

std::string printable(std::string_view text) {
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return clean;
}

const char* state_colour(std::string_view state) {
  constexpr std::array<std::string_view, 6> good{"up", "member", "running", "finished", "committed", "ok"};
  constexpr std::array<std::string_view, 8> bad{"gone",      "dead",      "fenced", "failed",
                                                "cancelled", "condemned", "fail",   "suspect"};
  if (std::find(good.begin(), good.end(), state) != good.end()) return "\033[32m";
  if (std::find(bad.begin(), bad.end(), state) != bad.end()) return "\033[31m";
  return "\033[33m";
}

// Characters, not bytes: continuation bytes of UTF-8 take no place.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0U) != 0x80U; }));
}

bool is_right_aligned(unit as) { return as == unit::number || as == unit::bytes || as == unit::milliseconds; }

std::string padded(const std::string& text, std::size_t to, bool right) {
  const std::string space(to - std::min(to, width(text)), ' ');
  return right ? space + text : text + space;
}

std::string coloured(const std::string& text, const std::string& cell, unit as, bool colour) {
  if (!colour || as != unit::state || text.empty()) return cell;
  return state_colour(text) + cell + "\033[0m";
}

json::object row_json(const table& t, std::size_t row) {
  json::object object;
  for (std::size_t c = 0; c < t.columns.size(); ++c)
    if (*t.columns[c].key != '\0') object[t.columns[c].key] = t.rows[row][c];
  return object;
}

value to_json(const table& t) {
  json::array rows;
  for (std::size_t r = 0; r < t.rows.size(); ++r) rows.push_back(row_json(t, r));
  return rows;
}

value to_json(const record& r) {
  json::object object;
  for (const auto& f : r.fields) object[f.what.key] = f.is;
  return object;
}

}  // namespace

value number(double v) { return std::isfinite(v) ? value(v) : value(nullptr); }

std::string to_text(const value& v, unit as) {
  if (v.is_null()) return "-";
  if (v.is_string()) return printable(v.get_string());
  if (v.is_bool()) return v.get_bool() ? "yes" : "no";
  if (v.is_array()) return list_text(v.get_array());
  if (v.is_object()) return printable(json::serialize(v));
  if (as == unit::date)
    return v.to_number<std::int64_t>() == 0 ? "-" : date_text(v.to_number<std::int64_t>());
  const auto real = v.to_number<double>();
  if (as == unit::bytes) return bytes_text(real);
  if (as == unit::milliseconds) return duration_text(real);
  return v.is_double() ? format("%.4g", real) : printable(json::serialize(v));
}

bool wants_colour(int file_descriptor) {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(file_descriptor) == 1 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

void renderer::show(const table& t) {
  if (look_.json)
    out_ << to_json(t) << "\n";
  else
    show_text(t);
}

void renderer::show(const record& r) {
  if (look_.json)
    out_ << to_json(r) << "\n";
  else
    show_text(r);
}

void renderer::show(const document& d) {
  if (look_.json) {
    json::object object;
    for (const auto& p : d.parts)
      object[p.key] = std::visit([](const auto& body) { return to_json(body); }, p.body);
    out_ << object << "\n";
    return;
  }
  bool is_first = true;
  for (const auto& p : d.parts) {
    if (!is_first) out_ << "\n";
    is_first = false;
    if (*p.title != '\0')
      out_ << (look_.colour ? "\033[1m" : "") << p.title << (look_.colour ? "\033[0m" : "") << "\n";
    std::visit([this](const auto& body) { show_text(body); }, p.body);
  }
}

void renderer::show_row(const table& t, std::size_t row) {
  if (look_.json) {
    out_ << row_json(t, row) << std::endl;
    return;
  }
  std::string line;
  for (std::size_t c = 0; c < t.columns.size(); ++c) {
    if (*t.columns[c].title == '\0') continue;
    const auto text = to_text(t.rows[row][c], t.columns[c].as);
    if (text.empty()) continue;
    line += (line.empty() ? "" : "  ") + coloured(text, text, t.columns[c].as, look_.colour);
  }
  out_ << line << std::endl;
}

void renderer::show_text(const table& t) {
  if (t.rows.empty()) {
    out_ << t.when_empty << "\n";
    return;
  }
  std::vector<std::vector<std::string>> cells;
  std::vector<std::size_t> widths;
  for (const auto& c : t.columns) widths.push_back(width(c.title));
  for (const auto& row : t.rows) {
    auto& line = cells.emplace_back();
    for (std::size_t c = 0; c < t.columns.size(); ++c) {
      line.push_back(to_text(row[c], t.columns[c].as));
      widths[c] = std::max(widths[c], width(line.back()));
    }
  }
  auto print = [&](auto cell_of) {
    std::string line;
    for (std::size_t c = 0; c < t.columns.size(); ++c)
      if (*t.columns[c].title != '\0') line += (line.empty() ? "" : "  ") + cell_of(c);
    line.erase(line.find_last_not_of(' ') + 1);
    out_ << line << "\n";
  };
  print([&](std::size_t c) {
    return padded(t.columns[c].title, widths[c], is_right_aligned(t.columns[c].as));
  });
  for (const auto& line : cells)
    print([&](std::size_t c) {
      const auto as = t.columns[c].as;
      return coloured(line[c], padded(line[c], widths[c], is_right_aligned(as)), as, look_.colour);
    });
}

void renderer::show_text(const record& r) {
  std::size_t longest = 0;
  for (const auto& f : r.fields) longest = std::max(longest, width(f.what.title));
  for (const auto& f : r.fields) {
    const auto text = to_text(f.is, f.what.as);
    if (*f.what.title == '\0' || text.empty()) continue;
    out_ << padded(f.what.title, longest, false) << "  " << coloured(text, text, f.what.as, look_.colour)
         << "\n";
  }
}

void renderer::say(std::string_view line) {
  if (!look_.json) out_ << printable(line) << std::endl;
}

void renderer::fail(const error& e) {
  if (look_.json)
    out_ << json::object{{"error", json::object{{"code", to_string(e.code)}, {"message", e.message}}}}
         << "\n";
  err_ << "perdura: " << printable(e.message) << std::endl;
}

}  // namespace perdura::console
