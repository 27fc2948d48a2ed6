#include "chaos/sim/schedule.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <sstream>

namespace perdura::sim {

namespace {

constexpr auto kinds = static_cast<std::uint32_t>(fault_kind::count_);

// How often each is drawn, of those that a seed uses at all.
constexpr std::uint32_t weights[kinds] = {6, 2, 4, 2, 2, 2, 2, 2, 3, 2, 3, 1,
                                          1, 2, 4, 2, 1, 2, 3, 3, 1, 3, 1};

// Time enough to hand over, when nothing else goes wrong.
constexpr micros patient = 1'500'000;

bool gentle(fault_kind k) {
  return k == fault_kind::slow_down || k == fault_kind::snapshot || k == fault_kind::join ||
         k == fault_kind::leave_by;
}

struct field {
  const char* name;
  std::uint64_t (*get)(const scenario&);
  void (*set)(scenario&, std::uint64_t);
  std::uint64_t low, high;
};

template <auto Member>
constexpr field field_of(const char* name, std::uint64_t low, std::uint64_t high) {
  return {name, [](const scenario& s) { return static_cast<std::uint64_t>(s.*Member); },
          [](scenario& s, std::uint64_t v) { s.*Member = static_cast<std::decay_t<decltype(s.*Member)>>(v); },
          low, high};
}

constexpr field fields[] = {
    field_of<&scenario::seed>("seed", 0, 1ULL << 62),
    field_of<&scenario::workers>("workers", 1, seats_max),
    field_of<&scenario::slots>("slots", 1, 64),
    field_of<&scenario::tiles>("tiles", 1, 16),
    field_of<&scenario::copies>("copies", 0, seats_max),
    field_of<&scenario::sharding>("sharding", 0, 3),
    field_of<&scenario::seats_a_host>("seats_a_host", 1, seats_max),
    field_of<&scenario::spares>("spares", 0, seats_max),
    field_of<&scenario::steps>("steps", 1, 1'000'000'000),
    field_of<&scenario::interval>("interval", 0, 1'000'000),
};

// What a kind needs beside its time.
fault draw_fault(draws& rng, fault_kind kind, micros when, std::uint32_t seats, std::uint32_t& next_seat) {
  const auto seat = [&] { return static_cast<std::uint32_t>(rng.next() % seats); };
  fault f{when, kind, seat(), 0, 0};
  switch (kind) {
    case fault_kind::vanish:
    case fault_kind::kill:
    case fault_kind::break_control:
    case fault_kind::suspect: break;
    case fault_kind::break_link: f.b = seat(); break;
    case fault_kind::silence_link:
      f.b = seat();
      f.lasts = rng.between(1'000, 90'000);
      break;
    case fault_kind::silence_control:
      f.b = rng.chance(0.5);
      f.lasts = rng.between(1'000, 150'000);
      break;
    case fault_kind::partition:
      f.a = static_cast<std::uint32_t>(rng.next() % (1U << seats));
      f.b = rng.chance(0.5);
      f.lasts = rng.between(1'000, 150'000);
      break;
    case fault_kind::crash_coordinator:
      f.a = rng.chance(0.5);
      f.lasts = rng.between(1'000, 80'000);
      break;
    case fault_kind::crash_at_effect:
      f.a = static_cast<std::uint32_t>(rng.between(0, 25));
      f.b = rng.chance(0.5);
      f.lasts = rng.between(1'000, 40'000);
      break;
    case fault_kind::take_over: f.lasts = rng.between(1'000, 80'000); break;
    case fault_kind::stop_worker: f.lasts = rng.between(1'000, 120'000); break;
    case fault_kind::stop_coordinator: f.lasts = rng.between(1'000, 150'000); break;
    case fault_kind::slow_disk:
      f.a = static_cast<std::uint32_t>(rng.between(200, 8'000));
      f.lasts = rng.between(5'000, 80'000);
      break;
    case fault_kind::drain: f.lasts = rng.between(5'000, 60'000); break;
    case fault_kind::pause: f.lasts = rng.between(1'000, 30'000); break;
    case fault_kind::snapshot: f.a = 0; break;
    case fault_kind::join: f.a = next_seat < seats_max ? next_seat++ : seat(); break;
    case fault_kind::kill_at_switch:
      f.a = static_cast<std::uint32_t>(rng.between(0, 2));
      f.lasts = rng.between(0, 6'000);
      break;
    case fault_kind::lose_host: break;
    case fault_kind::slow_down:
      f.b = static_cast<std::uint32_t>(rng.between(2, 12));
      f.lasts = rng.between(5'000, 200'000);
      break;
    case fault_kind::leave_by:
      f.b = rng.chance(0.5);
      f.lasts = rng.between(5'000, 150'000);
      break;
    case fault_kind::cut_link: f.b = seat(); break;
    case fault_kind::count_: break;
  }
  return f;
}

}  // namespace

const char* to_string(fault_kind k) {
  switch (k) {
    case fault_kind::kill: return "kill";
    case fault_kind::vanish: return "vanish";
    case fault_kind::break_link: return "break_link";
    case fault_kind::break_control: return "break_control";
    case fault_kind::silence_link: return "silence_link";
    case fault_kind::silence_control: return "silence_control";
    case fault_kind::partition: return "partition";
    case fault_kind::crash_coordinator: return "crash_coordinator";
    case fault_kind::crash_at_effect: return "crash_at_effect";
    case fault_kind::take_over: return "take_over";
    case fault_kind::stop_worker: return "stop_worker";
    case fault_kind::stop_coordinator: return "stop_coordinator";
    case fault_kind::slow_disk: return "slow_disk";
    case fault_kind::suspect: return "suspect";
    case fault_kind::drain: return "drain";
    case fault_kind::snapshot: return "snapshot";
    case fault_kind::pause: return "pause";
    case fault_kind::join: return "join";
    case fault_kind::kill_at_switch: return "kill_at_switch";
    case fault_kind::slow_down: return "slow_down";
    case fault_kind::lose_host: return "lose_host";
    case fault_kind::leave_by: return "leave_by";
    case fault_kind::cut_link: return "cut_link";
    case fault_kind::count_: break;
  }
  return "unknown";
}

micros scenario::calm_after() const {
  micros calm = 10'000;
  for (const auto& f : faults) calm = std::max(calm, f.when + f.lasts);
  return calm;
}

bool scenario::is_gentle() const {
  return std::all_of(faults.begin(), faults.end(), [](const fault& f) {
    return gentle(f.kind) && (f.kind != fault_kind::leave_by || f.lasts >= patient);
  });
}

scenario draw_scenario(std::uint64_t seed) {
  draws rng(seed, purpose::cluster);
  scenario s;
  s.seed = seed;
  s.slots = 1U << rng.between(1, 4);
  // Some runs end, most go on until the faults are over and everybody is well.
  if (rng.chance(0.3)) s.steps = static_cast<std::uint64_t>(rng.between(10, 60));
  s.interval = static_cast<std::uint64_t>(rng.between(3, 12));
  s.tiles = static_cast<std::uint32_t>(rng.between(1, 4));
  constexpr std::uint32_t copies[] = {0, 0, 0, 1, 1, 2, 2, 3};
  s.copies = copies[rng.between(0, 7)];
  s.sharding = s.copies == 0 ? 0 : static_cast<std::uint32_t>(rng.between(1, 3));
  s.workers = static_cast<std::uint32_t>(rng.between(1, 5));
  s.seats_a_host = rng.chance(0.5) ? 2 : 1;
  s.spares = rng.chance(0.25) ? static_cast<std::uint32_t>(rng.between(1, 2)) : 0;

  // A seed that uses few kinds of faults goes deeper into each.
  draws of_faults(seed, purpose::faults);
  const bool is_gentle = of_faults.chance(0.1);
  std::uint32_t total = 0, used[kinds];
  for (std::uint32_t k = 0; k < kinds; ++k) {
    used[k] = of_faults.chance(0.5) ? weights[k] : 0;
    // Some runs are gentle: what nobody has to die for must cost nothing.
    if (is_gentle && !gentle(static_cast<fault_kind>(k))) used[k] = 0;
    total += used[k];
  }
  if (total == 0) total = used[is_gentle ? static_cast<std::size_t>(fault_kind::leave_by) : 0] = 1;
  const auto until = of_faults.between(20'000, 250'000);
  const auto mean = of_faults.between(3'000, 60'000);
  auto next_seat = s.workers;
  for (micros when = of_faults.between(0, mean); when < until; when += of_faults.between(1, 2 * mean)) {
    auto pick = static_cast<std::uint32_t>(of_faults.next() % total);
    std::uint32_t k = 0;
    while (pick >= used[k]) pick -= used[k++];
    const auto kind = static_cast<fault_kind>(k);
    s.faults.push_back(draw_fault(of_faults, kind, when, next_seat, next_seat));
    if (is_gentle && kind == fault_kind::leave_by) s.faults.back().lasts = patient;
    if (is_gentle && kind == fault_kind::slow_down) s.faults.back().b = 2;
    const auto first = s.faults.back();
    // Two at a time; and all that a drained worker leaves for die while it goes.
    if (kind == fault_kind::kill && of_faults.chance(0.4))
      s.faults.push_back(draw_fault(of_faults, kind, when, next_seat, next_seat));
    if (kind == fault_kind::drain && of_faults.chance(0.3))
      for (const auto at = when + of_faults.between(500, 12'000); const auto seat : {0U, 1U, 2U, 3U, 4U})
        if (seat != first.a && seat < next_seat) s.faults.push_back({at, fault_kind::kill, seat, 0, 0});
  }
  std::stable_sort(s.faults.begin(), s.faults.end(),
                   [](const fault& x, const fault& y) { return x.when < y.when; });
  return s;
}

std::string to_string(const scenario& s) {
  std::string text;
  for (const auto& f : fields)
    text += (text.empty() ? "" : " ") + std::string(f.name) + " " + std::to_string(f.get(s));
  for (const auto& f : s.faults)
    text += "; " + std::to_string(f.when) + " " + to_string(f.kind) + " " + std::to_string(f.a) + " " +
            std::to_string(f.b) + " " + std::to_string(f.lasts);
  return text;
}

result<scenario> parse_scenario(const std::string& text) {
  scenario s;
  std::string lines = text;
  std::replace(lines.begin(), lines.end(), ';', '\n');
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::vector<std::string> w{std::istream_iterator<std::string>(words), {}};
    if (w.empty()) continue;
    const error wrong{
        errc::invalid_argument,
        "schedule: \"" + line + "\" is neither \"NAME VALUE ...\" nor \"TIME FAULT A B LASTS\""};
    std::vector<std::uint64_t> numbers;
    for (const auto& word : w) {
      char* end = nullptr;
      const auto n = std::strtoull(word.c_str(), &end, 10);
      numbers.push_back(*end == '\0' ? n : ~0ULL);
    }
    if (numbers[0] == ~0ULL) {
      for (std::size_t i = 0; i + 1 < w.size(); i += 2) {
        const auto* f = std::find_if(std::begin(fields), std::end(fields),
                                     [&](const field& x) { return x.name == w[i]; });
        if (f == std::end(fields) || numbers[i + 1] < f->low || numbers[i + 1] > f->high) return wrong;
        f->set(s, numbers[i + 1]);
      }
      if (w.size() % 2 != 0) return wrong;
      continue;
    }
    fault f;
    f.when = static_cast<micros>(numbers[0]);
    while (w.size() > 1 && f.kind != fault_kind::count_ && w[1] != to_string(f.kind))
      f.kind = static_cast<fault_kind>(static_cast<std::uint8_t>(f.kind) + 1);
    numbers.resize(5, 0);
    if (w.size() < 2 || f.kind == fault_kind::count_ || w.size() > 5) return wrong;
    f.a = static_cast<std::uint32_t>(numbers[2]);
    f.b = static_cast<std::uint32_t>(numbers[3]);
    f.lasts = static_cast<micros>(numbers[4]);
    s.faults.push_back(f);
  }
  if (!std::has_single_bit(s.slots))
    return error{errc::invalid_argument, "schedule: slots must be a power of two"};
  if ((s.copies == 0) != (s.sharding == 0))
    return error{errc::invalid_argument,
                 "schedule: copies and sharding must both be 0 (replicated), or neither"};
  std::stable_sort(s.faults.begin(), s.faults.end(),
                   [](const fault& x, const fault& y) { return x.when < y.when; });
  return s;
}

}  // namespace perdura::sim
