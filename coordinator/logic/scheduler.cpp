#include "coordinator/logic/scheduler.hpp"

#include <algorithm>
#include <set>

namespace perdura::coordinator {

namespace {

std::string count_of(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

struct job_state {
  const job_demand* demand{};
  std::vector<const worker_supply*> held{};  // that stay; those that compute least first
  bool is_served = false;                    // it has what it needs, or that is on its way
  bool is_stopped = false;                   // by this decision
  std::uint32_t least() const { return std::max<std::uint32_t>(1, demand->min_workers); }
  std::uint32_t lack() const {
    return held.size() < least() ? least() - static_cast<std::uint32_t>(held.size()) : 0;
  }
  std::uint32_t surplus() const {
    return held.size() > least() ? static_cast<std::uint32_t>(held.size()) - least() : 0;
  }
  bool has_room() const { return demand->max_workers == 0 || held.size() < demand->max_workers; }
  bool is_active() const { return demand->started && !demand->stopping && !is_stopped; }
  bool wants() const { return !demand->stopping && !demand->on_hold && !is_stopped; }
  bool fits(const worker_supply& w) const {
    return std::find(demand->unfit.begin(), demand->unfit.end(), w.who) == demand->unfit.end();
  }
};

using worker_list = std::vector<const worker_supply*>;

std::size_t fitting(const job_state& job, const worker_list& all) {
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const auto* w) { return job.fits(*w); }));
}

// One decision under way.
struct deal {
  schedule out;
  std::vector<job_state> jobs;  // highest first; among equals started ones first, then the oldest
  worker_list free;
  worker_list soon;  // handed over at the moment, then free
  worker_list going;

  deal(const std::vector<job_demand>& demands, const std::vector<worker_supply>& workers);

  // Moves fitting workers out of a pool, `count` at most.
  worker_list draw(worker_list& pool, const job_state& job, std::size_t count);
  void give(job_state& job, std::size_t count, const std::string& why);
  void start(job_state& job);
  void reserve(job_state& job, std::size_t count);
  bool take_from_lower(const job_state& job, std::size_t wanted);
  void begin(job_state& job, bool may_take);
  void grow(std::int32_t priority);
  worker_list set_aside(std::int32_t priority);
  std::string missing(const job_state& job) const;
};

deal::deal(const std::vector<job_demand>& demands, const std::vector<worker_supply>& workers) {
  for (const auto& d : demands) jobs.push_back({.demand = &d});
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    const auto& x = *a.demand;
    const auto& y = *b.demand;
    if (x.priority != y.priority) return x.priority > y.priority;
    if (x.started != y.started) return x.started;
    return x.id < y.id;
  });
  for (const auto& w : workers) {
    const auto job =
        std::find_if(jobs.begin(), jobs.end(), [&](const auto& j) { return j.demand->id == w.job; });
    if (w.going)
      going.push_back(&w);
    else if (w.job.empty())
      free.push_back(&w);
    else if (w.leaving || job == jobs.end() || job->demand->stopping)
      soon.push_back(&w);
    else
      job->held.push_back(&w);
  }
  for (auto& j : jobs)
    std::sort(j.held.begin(), j.held.end(), [](const auto* a, const auto* b) {
      return a->slots != b->slots ? a->slots < b->slots : a->who < b->who;
    });
}

worker_list deal::draw(worker_list& pool, const job_state& job, std::size_t count) {
  worker_list drawn;
  std::erase_if(pool, [&](const auto* w) {
    if (drawn.size() == count || !job.fits(*w)) return false;
    drawn.push_back(w);
    return true;
  });
  return drawn;
}

void deal::give(job_state& job, std::size_t count, const std::string& why) {
  for (const auto* w : draw(free, job, count)) {
    job.held.push_back(w);
    out.gives.push_back({w->who, job.demand->id, why});
  }
}

void deal::start(job_state& job) {
  schedule::start s{job.demand->id, {}, {}};
  for (const auto* w : draw(free, job, job.lack())) {
    job.held.push_back(w);
    s.workers.push_back(w->who);
  }
  s.reason = "it needs " + count_of(job.least(), "worker") + ", they are free";
  job.is_served = true;
  out.starts.push_back(std::move(s));
}

// Kept for the job, though it cannot use them yet.
void deal::reserve(job_state& job, std::size_t count) {
  job.is_served = true;
  const auto drawn = draw(free, job, count);
  draw(soon, job, count - drawn.size());
}

// Frees that many workers that fit, or none at all: what cannot help is not disturbed.
bool deal::take_from_lower(const job_state& job, std::size_t wanted) {
  std::vector<job_state*> lower;  // the lowest and youngest first
  for (auto& j : jobs)
    if (j.demand->priority < job.demand->priority && j.is_active()) lower.insert(lower.begin(), &j);
  const auto surplus_of = [&](const job_state& j) {
    return std::min<std::size_t>(j.surplus(), fitting(job, j.held));
  };
  std::set<job_state*> whole;
  const auto total = [&] {
    std::size_t n = 0;
    for (auto* j : lower) n += whole.contains(j) ? fitting(job, j->held) : surplus_of(*j);
    return n;
  };
  for (auto* j : lower) {
    if (total() >= wanted) break;
    whole.insert(j);
  }
  if (total() < wanted) return false;
  for (auto j = lower.rbegin(); j != lower.rend(); ++j)
    if (whole.erase(*j) > 0 && total() < wanted) whole.insert(*j);

  const std::string why = job.demand->id + " (priority " + std::to_string(job.demand->priority) + ") needs " +
                          count_of(job.least(), "worker") + " and has " + std::to_string(job.held.size());
  for (auto* j : whole) {
    wanted -= std::min(wanted, fitting(job, j->held));
    out.stops.push_back({j->demand->id, why});
    j->held.clear();
    j->is_stopped = true;
  }
  for (auto* j : lower) {
    if (whole.contains(j)) continue;
    for (auto n = std::min(wanted, surplus_of(*j)); n > 0; --n, --wanted) {
      const auto w =
          std::find_if(j->held.begin(), j->held.end(), [&](const auto* x) { return job.fits(*x); });
      out.takes.push_back({(*w)->who, j->demand->id, why});
      j->held.erase(w);
    }
  }
  return true;
}

// The least number: of what is free, of what is on its way, of what lower ones have.
void deal::begin(job_state& job, bool may_take) {
  const auto lack = job.lack();
  if (lack == 0) return;
  const auto there = fitting(job, free);
  const auto coming = fitting(job, soon);
  if (there >= lack && !job.demand->started) return start(job);
  out.lacks[job.demand->id] = missing(job);
  if (job.demand->started)
    give(job, lack, "it has fewer than the " + std::to_string(job.least()) + " it needs");
  const auto still = job.lack() - (job.demand->started ? 0 : std::min<std::size_t>(lack, there));
  if (job.lack() == 0) {
    out.lacks.erase(job.demand->id);
    return;
  }
  if (coming < still && !(may_take && take_from_lower(job, still - coming))) return;
  reserve(job, job.lack());
}

// For gangs that equals stand in the way of: if all that gets free made these equals grow, it would never be
// their turn.
worker_list deal::set_aside(std::int32_t priority) {
  worker_list aside;
  for (const auto& j : jobs) {
    if (j.demand->priority != priority || !j.wants() || j.demand->started || j.is_served) continue;
    std::size_t within_reach = fitting(j, free) + fitting(j, soon);
    for (const auto& other : jobs)
      if (other.demand->priority <= priority) within_reach += fitting(j, other.held);
    if (within_reach < j.lack()) continue;
    for (const auto* w : draw(free, j, j.lack())) aside.push_back(w);
  }
  return aside;
}

// What is left goes where there are fewest.
void deal::grow(std::int32_t priority) {
  for (;;) {
    job_state* least = nullptr;
    for (auto& j : jobs) {
      if (j.demand->priority != priority || !j.wants() || j.held.size() < j.least() || !j.has_room())
        continue;
      if (fitting(j, free) == 0) continue;
      if (!least || j.held.size() < least->held.size()) least = &j;
    }
    if (!least) return;
    give(*least, 1, "it is free");
  }
}

std::string deal::missing(const job_state& job) const {
  const auto& d = *job.demand;
  const auto there = fitting(job, free);
  std::string text = "needs " + count_of(job.least(), "worker");
  if (!job.held.empty()) text += ", has " + std::to_string(job.held.size());
  text += ", " + std::to_string(there) + (there == 1 ? " is free" : " are free");
  if (const auto n = fitting(job, soon); n > 0) text += "; " + std::to_string(n) + " are being handed over";
  for (const auto& j : jobs)
    if (&j != &job && !j.held.empty() && j.demand->priority >= d.priority)
      text += "; " + std::to_string(j.held.size()) + " serve " + j.demand->id + " (priority " +
              std::to_string(j.demand->priority) + ")";
  std::set<std::string> nodes;
  for (const auto* w : going) nodes.insert(w->node.empty() ? w->name : w->node);
  for (const auto& n : nodes) text += "; " + n + " is draining";
  if (const auto n = free.size() - there; n > 0)
    text += "; " + std::to_string(n) + " cannot serve it (their bits differ, or they cannot load it)";
  return text;
}

}  // namespace

schedule scheduler::decide(const std::vector<job_demand>& demands, const std::vector<worker_supply>& workers,
                           time_point now) {
  deal d(demands, workers);
  std::erase_if(given_, [&](const auto& g) {
    return std::none_of(demands.begin(), demands.end(),
                        [&](const auto& j) { return j.id == g.first && j.started && !j.stopping; });
  });
  std::erase_if(lacking_since_, [&](const auto& l) { return !given_.contains(l.first); });
  std::set<std::int32_t, std::greater<>> levels;
  for (auto& j : d.jobs) {
    levels.insert(j.demand->priority);
    if (!j.is_active()) continue;
    auto& given = given_[j.demand->id];
    given = std::max(given, static_cast<std::uint32_t>(j.held.size()));
    if (j.lack() == 0)
      lacking_since_.erase(j.demand->id);
    else
      lacking_since_.try_emplace(j.demand->id, now);
  }
  const auto is_patient = [&](const job_state& j) {
    const auto since = lacking_since_.find(j.demand->id);
    return since == lacking_since_.end() || now - since->second < patience_;
  };
  for (const auto level : levels) {
    for (auto& j : d.jobs) {
      if (j.demand->priority != level || !j.is_active()) continue;
      d.begin(j, !is_patient(j));
      const std::size_t given = given_[j.demand->id];
      if (j.lack() == 0 && j.held.size() < given) d.give(j, given - j.held.size(), "it has lost one");
    }
    for (auto& j : d.jobs)
      if (j.demand->priority == level && j.wants() && !j.demand->started) d.begin(j, true);
    const auto aside = d.set_aside(level);
    d.grow(level);
    d.free.insert(d.free.end(), aside.begin(), aside.end());  // lower ones can give them back
  }
  for (auto& j : d.jobs) {
    // A gang that has come apart before it began would keep others waiting for nothing.
    if (j.is_active() && !j.demand->computes && !j.held.empty() && j.lack() > 0 && !j.is_served &&
        !is_patient(j))
      d.out.stops.push_back({j.demand->id, "it cannot begin: " + d.out.lacks[j.demand->id]});
  }
  for (const auto& t : d.out.takes) --given_[t.job];
  return std::move(d.out);
}

}  // namespace perdura::coordinator
