#include "coordinator/logic/scheduler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace perdura;
using namespace perdura::coordinator;
using namespace std::chrono_literals;

namespace {

incarnation id_of(unsigned n) { return {n, n}; }

// Jobs and workers whose state follows each decision at once, but for what is handed over.
struct cluster {
  std::vector<job_demand> jobs;
  std::vector<worker_supply> workers;
  scheduler logic{5s};
  scheduler::time_point now{};

  job_demand& job(const std::string& id) {
    return *std::find_if(jobs.begin(), jobs.end(), [&](const auto& j) { return j.id == id; });
  }
  worker_supply& worker(const incarnation& who) {
    return *std::find_if(workers.begin(), workers.end(), [&](const auto& w) { return w.who == who; });
  }
  void add_job(const std::string& id, std::uint32_t min, std::int32_t priority = 0, std::uint32_t max = 0) {
    job_demand j;
    j.id = id;
    j.min_workers = min;
    j.max_workers = max;
    j.priority = priority;
    jobs.push_back(j);
  }
  void add_workers(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      const auto n = static_cast<unsigned>(workers.size()) + 1;
      workers.push_back(
          {id_of(n), "w" + std::to_string(n), "node-" + std::to_string(n), "", false, false, 0});
    }
  }
  std::size_t held(const std::string& id) const {
    return static_cast<std::size_t>(std::count_if(workers.begin(), workers.end(), [&](const auto& w) {
      return w.job == id && !w.leaving && !w.going;
    }));
  }
  schedule decide() { return logic.decide(jobs, workers, now); }
  void apply(const schedule& s) {
    for (const auto& x : s.starts) {
      job(x.job).started = job(x.job).computes = true;
      for (const auto& who : x.workers) worker(who).job = x.job;
    }
    for (const auto& x : s.gives) worker(x.who).job = x.job;
    for (const auto& x : s.takes) worker(x.who).leaving = true;
    for (const auto& x : s.stops) job(x.job).stopping = true;
  }
  schedule step() {
    auto s = decide();
    apply(s);
    return s;
  }
  void hand_over() {
    for (auto& j : jobs) {
      if (!j.stopping) continue;
      for (auto& w : workers)
        if (w.job == j.id) w.job.clear();
      j.started = j.stopping = j.computes = false;
    }
    for (auto& w : workers)
      if (w.leaving) {
        w.job.clear();
        w.leaving = false;
      }
  }
  // Until nothing moves any more.
  void settle() {
    for (int i = 0; i < 20; ++i) {
      step();
      hand_over();
      now += 10s;
    }
  }
};

}  // namespace

TEST_CASE("a job starts with all workers there are") {
  cluster c;
  c.add_workers(3);
  c.add_job("j1", 2);
  const auto s = c.step();
  REQUIRE(s.starts.size() == 1);
  CHECK(s.starts[0].workers.size() == 2);
  CHECK_FALSE(s.starts[0].reason.empty());
  CHECK(c.held("j1") == 3);
  CHECK(s.lacks.empty());
}

TEST_CASE("a job that lacks workers holds none and says what is missing") {
  cluster c;
  c.add_workers(3);
  c.workers[2].going = true;
  c.add_job("j1", 4);
  const auto s = c.step();
  CHECK(c.held("j1") == 0);
  CHECK(s.lacks.at("j1") == "needs 4 workers, 2 are free; node-3 is draining");
}

TEST_CASE("a gang starts when its last worker comes") {
  cluster c;
  c.add_workers(3);
  c.add_job("j1", 4);
  CHECK(c.step().starts.empty());
  c.add_workers(1);
  CHECK(c.step().starts.size() == 1);
  CHECK(c.held("j1") == 4);
}

TEST_CASE("a job gets no more workers than its quota") {
  cluster c;
  c.add_workers(5);
  c.add_job("j1", 1, 0, 2);
  c.add_job("j2", 1, 0, 0);
  c.settle();
  CHECK(c.held("j1") == 2);
  CHECK(c.held("j2") == 3);
}

TEST_CASE("a higher job takes what a lower one has above its least number, and nothing more") {
  cluster c;
  c.add_workers(4);
  for (unsigned i = 0; i < 4; ++i) c.workers[i].slots = 4 - i;
  c.add_job("low", 1);
  c.settle();
  c.add_job("high", 2, 1, 2);
  const auto s = c.step();
  CHECK(s.stops.empty());
  REQUIRE(s.takes.size() == 2);
  CHECK(s.takes[0].who == id_of(4));  // it computes least
  CHECK(s.takes[0].reason == "high (priority 1) needs 2 workers and has 0");
  CHECK(c.held("high") == 0);     // none before all are there
  CHECK(c.step().takes.empty());  // they are on their way
  c.hand_over();
  c.settle();
  CHECK(c.held("high") == 2);
  CHECK(c.held("low") == 2);
}

TEST_CASE("a higher job stops a lower one whole when that is what it takes") {
  cluster c;
  c.add_workers(3);
  c.add_job("low", 2);
  c.settle();
  c.add_job("high", 3, 1);
  const auto s = c.step();
  REQUIRE(s.stops.size() == 1);
  CHECK(s.stops[0].job == "low");
  CHECK(s.takes.empty());
  c.settle();
  CHECK(c.held("high") == 3);
  c.jobs.erase(c.jobs.begin() + 1);
  for (auto& w : c.workers) w.job.clear();
  c.settle();
  CHECK(c.held("low") == 3);
}

TEST_CASE("of two lower jobs only the one that helps is stopped") {
  cluster c;
  c.add_workers(5);
  c.add_job("a", 4, 0, 4);
  c.add_job("b", 1, 0, 1);
  c.settle();
  c.add_job("high", 4, 1, 4);
  const auto s = c.step();
  REQUIRE(s.stops.size() == 1);
  CHECK(s.stops[0].job == "a");
}

TEST_CASE("a job that cannot fit even so disturbs nobody") {
  cluster c;
  c.add_workers(3);
  c.add_job("low", 1);
  c.settle();
  c.add_job("high", 4, 1);
  const auto s = c.step();
  CHECK(s.takes.empty());
  CHECK(s.stops.empty());
  CHECK(s.lacks.at("high") == "needs 4 workers, 0 are free");
  CHECK(c.held("low") == 3);
}

TEST_CASE("nothing is taken from equals, and the reason names them") {
  cluster c;
  c.add_workers(3);
  c.add_job("j1", 1);
  c.settle();
  c.add_job("j2", 2);
  const auto s = c.step();
  CHECK(s.takes.empty());
  CHECK(s.stops.empty());
  CHECK(s.lacks.at("j2") == "needs 2 workers, 0 are free; 3 serve j1 (priority 0)");
}

TEST_CASE("what gets free is kept for the equal that waits, but a lost worker is replaced first") {
  cluster c;
  c.add_workers(3);
  c.add_job("j1", 1);
  c.settle();
  c.add_job("j2", 2);
  c.workers.pop_back();  // j1 lost one, and gets another
  c.add_workers(1);
  c.step();
  CHECK(c.held("j1") == 3);
  c.add_workers(1);
  c.step();
  CHECK(c.held("j1") == 3);
  c.add_workers(1);
  CHECK(c.step().starts.size() == 1);
  CHECK(c.held("j2") == 2);
}

TEST_CASE("free workers go to the equal that has fewest") {
  cluster c;
  c.add_workers(2);
  c.add_job("j1", 1, 0, 8);
  c.add_job("j2", 1, 0, 8);
  c.settle();
  CHECK(c.held("j1") == 1);
  CHECK(c.held("j2") == 1);
  c.add_workers(5);
  c.step();
  CHECK(c.held("j1") == 4);
  CHECK(c.held("j2") == 3);
}

TEST_CASE("a worker that cannot serve a job is not given to it again, and serves others") {
  cluster c;
  c.add_workers(3);
  c.add_job("j1", 2);
  c.jobs[0].unfit = {id_of(1), id_of(2)};
  const auto s = c.step();
  CHECK(s.starts.empty());
  CHECK(s.lacks.at("j1") ==
        "needs 2 workers, 1 is free; 2 cannot serve it (their bits differ, or they cannot load it)");
  c.add_job("j2", 2);
  c.step();
  CHECK(c.held("j2") >= 2);
}

TEST_CASE("a drained worker is given to nobody and replaced in its job") {
  cluster c;
  c.add_workers(3);
  c.add_job("j1", 2, 0, 2);
  c.settle();
  c.workers[0].going = true;
  const auto s = c.step();
  REQUIRE(s.gives.size() == 1);
  CHECK(s.gives[0].who == id_of(3));
  CHECK(c.held("j1") == 2);
}

TEST_CASE("workers are taken for a started job only when its lack lasts") {
  cluster c;
  c.add_workers(5);
  c.add_job("high", 2, 1, 2);
  c.add_job("low", 1);
  c.settle();
  REQUIRE(c.held("low") == 3);
  std::erase_if(c.workers, [](const auto& w) { return w.who == id_of(1); });
  CHECK(c.step().takes.empty());
  c.now += 6s;
  CHECK(c.step().takes.size() == 1);
}

TEST_CASE("a gang that came apart before it began gives its workers back") {
  cluster c;
  c.add_workers(3);
  c.add_job("j1", 3);
  c.settle();
  c.job("j1").computes = false;
  c.workers.pop_back();
  CHECK(c.step().stops.empty());
  c.now += 6s;
  const auto s = c.step();
  REQUIRE(s.stops.size() == 1);
  CHECK(s.stops[0].reason.find("needs 3 workers, has 2") != std::string::npos);
}

namespace {

// Arrivals, departures, drains, submissions, ends and cancellations at random; each decision is judged.
struct random_cluster : cluster {
  std::mt19937_64 rng;
  unsigned next_worker = 0;
  unsigned next_job = 0;
  std::size_t moves = 0;

  explicit random_cluster(std::uint64_t seed) : rng(seed) {}
  unsigned pick(unsigned n) { return static_cast<unsigned>(rng() % n); }

  void disturb() {
    const auto kind = pick(9);
    if (kind < 3 && workers.size() < 12) {
      ++next_worker;
      workers.push_back(
          {id_of(next_worker), "w", "n" + std::to_string(next_worker), "", false, false, pick(4)});
    } else if (kind < 5 && jobs.size() < 5) {
      const auto min = 1 + pick(4);
      add_job("j" + std::to_string(100 + ++next_job), min, static_cast<std::int32_t>(pick(3)),
              pick(2) ? 0 : min + pick(3));
    } else if (kind == 5 && !workers.empty()) {
      workers.erase(workers.begin() + pick(static_cast<unsigned>(workers.size())));
    } else if (kind == 6 && !jobs.empty()) {
      const auto at = pick(static_cast<unsigned>(jobs.size()));
      for (auto& w : workers)
        if (w.job == jobs[at].id) {
          w.job.clear();
          w.leaving = false;
        }
      jobs.erase(jobs.begin() + at);
    } else if (kind == 7 && !workers.empty()) {
      workers[pick(static_cast<unsigned>(workers.size()))].going = true;
    } else if (kind == 8 && !jobs.empty() && !workers.empty()) {
      auto& w = workers[pick(static_cast<unsigned>(workers.size()))];
      if (w.job.empty()) jobs[pick(static_cast<unsigned>(jobs.size()))].unfit.push_back(w.who);
    }
  }

  bool lacks_higher(std::int32_t than) const {
    return std::any_of(jobs.begin(), jobs.end(),
                       [&](const auto& j) { return j.priority > than && held(j.id) < j.min_workers; });
  }
  bool fits(const std::string& id, const incarnation& who) {
    const auto& unfit = job(id).unfit;
    return std::find(unfit.begin(), unfit.end(), who) == unfit.end();
  }

  void judge(const schedule& s) {
    std::set<incarnation> moved;
    const auto is_free = [&](const incarnation& who) {
      const auto& w = worker(who);
      return w.job.empty() && !w.going && moved.insert(who).second;
    };
    for (const auto& x : s.starts) {
      CHECK_FALSE(job(x.job).started);
      CHECK(x.workers.size() == job(x.job).min_workers);
      for (const auto& who : x.workers) CHECK((is_free(who) && fits(x.job, who)));
    }
    for (const auto& x : s.gives) {
      const bool starts =
          std::any_of(s.starts.begin(), s.starts.end(), [&](auto& y) { return y.job == x.job; });
      CHECK((starts || job(x.job).started));
      CHECK_FALSE(job(x.job).stopping);
      CHECK((is_free(x.who) && fits(x.job, x.who)));
    }
    std::map<std::string, std::size_t> taken;
    for (const auto& x : s.takes) {
      CHECK(worker(x.who).job == x.job);
      CHECK_FALSE(worker(x.who).leaving);
      CHECK(moved.insert(x.who).second);
      CHECK(lacks_higher(job(x.job).priority));
      ++taken[x.job];
    }
    for (const auto& [id, n] : taken) CHECK(held(id) - n >= job(id).min_workers);
    for (const auto& x : s.stops) {
      CHECK(job(x.job).started);
      CHECK(lacks_higher(job(x.job).priority));
    }
    for (const auto* list : {&s.gives, &s.takes})
      for (const auto& x : *list) CHECK_FALSE(x.reason.empty());
    moves += s.gives.size() + s.takes.size() + s.stops.size() + s.starts.size();
  }

  void round() {
    const auto s = decide();
    judge(s);
    apply(s);
    for (const auto& j : jobs) {
      if (j.max_workers > 0) CHECK(held(j.id) <= std::max(j.max_workers, j.min_workers));
      if (!j.started) CHECK(held(j.id) == 0);
    }
  }

  // The highest job that waits does so because it cannot be helped.
  void check_highest_served() {
    const job_demand* highest = nullptr;
    for (const auto& j : jobs)
      if (!j.started && (!highest || j.priority > highest->priority)) highest = &j;
    if (!highest) return;
    std::size_t within_reach = 0;
    for (const auto& w : workers) {
      if (w.going || !fits(highest->id, w.who)) continue;
      within_reach += w.job.empty() || job(w.job).priority < highest->priority ? 1 : 0;
    }
    CHECK(within_reach < highest->min_workers);
  }
};

}  // namespace

TEST_CASE(
    "whatever comes and goes: one job a worker, gangs, quotas, no starvation of the highest, few moves") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    random_cluster c(seed);
    for (int i = 0; i < 60; ++i) {
      c.disturb();
      c.round();
      c.now += std::chrono::seconds(c.pick(8));
      if (c.pick(3) == 0) c.hand_over();
    }
    c.moves = 0;
    int quiet = 0;
    for (int i = 0; i < 40 && quiet < 3; ++i) {
      const auto before = c.moves;
      c.round();
      c.hand_over();
      c.now += 6s;
      quiet = c.moves == before ? quiet + 1 : 0;
    }
    CHECK(quiet == 3);
    CHECK(c.moves <= 3 * (c.workers.size() + c.jobs.size()));
    c.check_highest_served();
  }
}
