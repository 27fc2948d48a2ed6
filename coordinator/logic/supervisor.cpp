#include "coordinator/logic/supervisor.hpp"

#include <algorithm>

#include "actors/base/check.hpp"
#include "actors/base/overloaded.hpp"

namespace perdura::coordinator {

namespace {

bool contains(const std::vector<incarnation>& list, const incarnation& who) {
  return std::find(list.begin(), list.end(), who) != list.end();
}

straggler_options slow_options(const job_config& job, const supervisor_options& options) {
  auto o = options.slow;
  o.may_move = job.elastic.rebalance;
  o.may_let_go = job.elastic.evict_slow;
  return o;
}

}  // namespace

const char* to_string(stage s) {
  switch (s) {
    case stage::waiting: return "waiting";
    case stage::reconnecting: return "reconnecting";
    case stage::fencing: return "fencing";
    case stage::recovering: return "recovering";
    case stage::running: return "running";
    case stage::ended: return "ended";
  }
  return "unknown";
}

supervisor::supervisor(term_number term, const job_config& job, supervisor_options options,
                       durable_state known, restore_point restore, effects& out, time_point now,
                       broken_rules broken)
    : term_(term),
      job_(job),
      options_(options),
      out_(out),
      broken_(broken),
      state_(std::move(known)),
      slow_(slow_options(job, options)),
      restore_(restore) {
  for (const auto& d : state_.draining) {
    auto& clock = drains_[d.who];
    clock = {d, now, std::nullopt, std::nullopt};
    if (d.within_ms > 0) clock.deadline = now + std::chrono::milliseconds(d.within_ms);
    if (d.is_slow) clock.back_at = now + options_.probation;
  }
  if (state_.ended) {
    stage_ = stage::ended;
  } else if (state_.recovery) {
    // Whoever runs goes on running; nobody is declared dead before one full lease has passed.
    stage_ = stage::reconnecting;
    deadline_ = now + options_.lease;
    waiting_for_ = "the workers of the last term to come back";
  } else {
    waiting_for_ = "workers";
  }
}

// ---- membership

bool supervisor::is_fenced(const incarnation& who) const { return contains(state_.fenced, who); }

bool supervisor::is_draining(const incarnation& who) const { return drains_.contains(who); }

bool supervisor::is_learner(const incarnation& who) const {
  return state_.pending && state_.pending->next.has_member(who) && !is_member(who);
}

bool supervisor::is_involved(const incarnation& who) const {
  const bool adopting = stage_ == stage::recovering && state_.recovery->next.has_member(who);
  return is_member(who) || is_learner(who) || adopting || contains(state_.releasing, who);
}

std::vector<incarnation> supervisor::connected() const {
  std::vector<incarnation> all;
  for (const auto& [who, w] : workers_) all.push_back(who);
  return all;
}

std::string supervisor::name_of(const incarnation& who) const {
  const auto n = names_.find(who);
  return n == names_.end() || n->second.empty() ? short_name(who) : n->second;
}

void supervisor::note(event_kind kind, std::string subject, std::string reason,
                      std::vector<std::pair<std::string, std::string>> fields) {
  out_.push_back(effect::note{{kind, std::move(subject), std::move(reason), std::move(fields)}});
}

void supervisor::persist() { out_.push_back(effect::persist{std::make_shared<const durable_state>(state_)}); }

void supervisor::fence(const incarnation& who, const std::string& why) {
  if (is_fenced(who)) return;
  forget_drain(who);
  state_.fenced.push_back(who);
  if (state_.fenced.size() > options_.fenced_max) state_.fenced.erase(state_.fenced.begin());
  note(event_kind::worker_fenced, name_of(who), why, {{"incarnation", to_string(who)}});
}

void supervisor::arrived(const worker_hello& hello, const node_labels& at, time_point now) {
  if (is_fenced(hello.who)) return send(hello.who, fenced_order{state_.at});
  if (stage_ == stage::ended) return;
  names_[hello.who] = hello.name;
  if (state_.numeric_class == 0) state_.numeric_class = hello.numeric_class;
  if (hello.numeric_class != state_.numeric_class) {
    note(event_kind::worker_refused, name_of(hello.who),
         "its bits differ from the job's: numeric class " + std::to_string(hello.numeric_class) + ", not " +
             std::to_string(state_.numeric_class));
    return;
  }
  const bool is_new = !workers_.contains(hello.who);
  auto& w = workers_[hello.who];
  w.hello = hello;
  w.at = at;
  if (is_new) w.since = now;
  look_ = true;
  if (hello.newest) on_verdict({hello.who, *hello.newest}, now);
  switch (stage_) {
    case stage::waiting: return begin_if_enough(now);
    case stage::reconnecting: return resume_if_complete(now);
    default: catch_up(hello.who); propose_if_wanted(now);
  }
}

// What was sent on a connection that broke may be lost: say it again. All of it is idempotent.
void supervisor::catch_up(const incarnation& who) {
  if (stage_ == stage::fencing) {
    awaited_.insert(who);
    inventories_.erase(who);
    return send(who, fence_order{state_.at, state_.timeline});
  }
  if (stage_ == stage::recovering) return send(who, *state_.recovery);
  if (stage_ != stage::running) return;
  if (is_involved(who) || !broken(rule::hear_left_out))
    send(who, *state_.recovery);  // also to those it left out: they have promised and wait
  if (!is_involved(who)) return;
  if (state_.recovery->next.has_member(who)) send(who, start_order{state_.at});
  if (state_.pending) send(who, *state_.pending);
}

void supervisor::lost(const incarnation& who, const std::string& why, time_point now) {
  if (stage_ == stage::ended || is_fenced(who)) return;
  const bool was_involved = is_involved(who);
  if (workers_.erase(who) == 0 && !was_involved) return;
  note(event_kind::worker_lost, name_of(who), why, {{"incarnation", to_string(who)}});
  fence(who, why);
  send(who, fenced_order{state_.at});  // should it live after all
  inventories_.erase(who);
  awaited_.erase(who);
  slow_.forget(who);
  link_record_.forget(who);
  look_ = true;
  switch (stage_) {
    case stage::waiting:
    case stage::reconnecting:
    case stage::ended: return persist();
    case stage::fencing: return decide_if_complete(now);
    case stage::recovering:
    case stage::running:
      if (was_involved) return open_era("lost", name_of(who) + " was lost: " + why, now);
      return persist();
  }
}

void supervisor::begin_if_enough(time_point now) {
  const auto needed = std::max<std::size_t>(1, job_.elastic.min_workers);
  const auto able = able_to_join(now);
  if (able < needed) {
    deadline_.reset();
    waiting_for_ =
        std::to_string(needed - able) + " more workers (of at least " + std::to_string(needed) + ")";
    return;
  }
  if (!deadline_) {
    deadline_ = now + options_.gather;
    waiting_for_ = "further workers to gather";
  }
  if (now >= *deadline_)
    state_.recovery ? open_era("return", "enough workers are back", now)
                    : open_era("start", "the job starts", now);
}

void supervisor::resume_if_complete(time_point now) {
  if (workers_.size() < state_.current.members.size() && now < *deadline_) return;
  const auto is_back = [&](const incarnation& who) { return workers_.contains(who); };
  bool complete = state_.started;
  for (const auto& m : state_.current.members) complete = complete && is_back(m.who);
  if (state_.pending)
    for (const auto& m : state_.pending->next.members) complete = complete && is_back(m.who);
  for (const auto& who : state_.releasing) complete = complete && is_back(who);
  if (complete) {
    stage_ = stage::running;
    deadline_.reset();
    note(event_kind::plan_started, to_string(state_.current.id),
         "all its workers came back to term " + to_string(term_));
    for (const auto& [who, w] : workers_) catch_up(who);
    finish_if_complete(now);
    look_ = true;
    if (complaint_) return on_complaint(*complaint_, now);
    return propose_if_wanted(now);
  }
  if (now < *deadline_) return;
  auto absent = state_.current.members;
  std::erase_if(absent, [&](const auto& m) { return is_back(m.who); });
  for (const auto& m : absent) fence(m.who, "did not come back within a lease of the coordinator's restart");
  stage_ = stage::waiting;
  deadline_ = now;
  begin_if_enough(now);
}

// ---- recovery

void supervisor::open_era(const std::string& cause, const std::string& why, time_point now) {
  // Who holds nothing that a decision could use is not waited for: it may have gone with its machine.
  std::set<incarnation> needed;
  for (const auto& [who, w] : workers_)
    if (is_involved(who) || (state_.recovery && !state_.started && state_.recovery->next.has_member(who)))
      needed.insert(who);
  state_.at = state_.at.term == term_ ? era{term_, state_.at.count + 1} : era{term_, 1};
  state_.started = false;
  stage_ = stage::fencing;
  inventories_.clear();
  finals_.clear();
  unready_links_.clear();
  final_deadline_.reset();
  deadline_ = now + options_.adopt_timeout;
  if (!broken(rule::persist_era)) persist();
  note(event_kind::era_opened, to_string(state_.at), why, {{"cause", cause}});
  awaited_ = std::move(needed);
  if (awaited_.empty())
    for (const auto& [who, w] : workers_) awaited_.insert(who);
  send_to_all(connected(), fence_order{state_.at, state_.timeline});
  decide_if_complete(now);
}

void supervisor::on_inventory(const inventory_report& r, time_point now) {
  if (stage_ != stage::fencing || r.at != state_.at || !workers_.contains(r.who)) return;
  if (r.newest) on_verdict({r.who, *r.newest}, now);
  inventories_[r.who] = r;
  awaited_.erase(r.who);
  decide_if_complete(now);
}

// The inventories are used up: whatever is decided, the next era asks for new ones.
recovery_input supervisor::take_recovery_input() {
  recovery_input in;
  in.at = state_.at;
  in.timeline = state_.timeline;
  in.slots = job_.batch.slots;
  in.tiles = options_.tiles;
  in.replicas = options_.replicas;
  std::vector<incarnation> survivors;
  for (auto& [who, i] : inventories_) {
    in.inventories.push_back(std::move(i));
    survivors.push_back(who);
  }
  inventories_.clear();
  in.known = capacities(survivors);
  in.weights = options_.weights;
  in.largest_block = largest_block();
  in.hands_over = level_of(job_) >= sharding_level::gradients;
  in.record = state_.newest;
  if (state_.recovery) {
    in.base = state_.recovery->settled;
    in.base_verdict = state_.recovery->standing;
  }
  in.effective = state_.current;
  in.action = state_.wanted == plan_action::pause ? plan_action::pause : plan_action::train;
  in.restore = restore_.source;
  in.restore_verdict = restore_.at;
  return in;
}

void supervisor::decide_if_complete(time_point now) {
  if (stage_ != stage::fencing || !awaited_.empty()) return;
  auto input = take_recovery_input();
  auto decision = decide(input, broken_);
  const auto needed = std::max<std::size_t>(1, job_.elastic.min_workers);
  bool too_few = false;
  if (decision && decision->how == settled_how::restored) {
    // All begin anew: whoever is to go and whoever is a spare is left out.
    auto able = candidates(now);
    too_few = able.size() < needed;
    able.resize(std::min(able.size(), members_wanted(able.size())));
    std::sort(able.begin(), able.end());
    std::erase_if(input.inventories,
                  [&](const auto& i) { return !std::binary_search(able.begin(), able.end(), i.who); });
    if (!too_few) decision = decide(input, broken_);
  }
  if (!decision || too_few) {
    stage_ = stage::waiting;
    deadline_.reset();
    persist();
    return begin_if_enough(now);
  }
  auto& order = decision->order;
  if (order.settled.value >= job_.steps)
    decision->recomputed_slots = 0;  // there is no step to compute any more
  state_.recovery = order;
  if (order.timeline != state_.timeline) {
    state_.newest = order.standing;
    if (!broken(rule::persist_timeline)) state_.timeline = order.timeline;
  }
  state_.pending.reset();
  state_.releasing.clear();
  state_.sequence = 0;
  persist();
  note(event_kind::recovery_decided, to_string(state_.at), decision->reason,
       {{"settled", to_string(order.settled)},
        {"how", decision->how == settled_how::completed ? "completed"
                : decision->how == settled_how::redone  ? "redone"
                                                        : "restored"},
        {"recomputed_slots", std::to_string(decision->recomputed_slots)},
        {"timeline", to_string(order.timeline)},
        {"members", std::to_string(order.next.members.size())}});
  state_.timeline = order.timeline;
  stage_ = stage::recovering;
  deadline_ = now + options_.adopt_timeout;
  decided_at_ = now;
  missing_links_.clear();
  awaited_.clear();
  for (const auto& m : order.next.members) awaited_.insert(m.who);
  auto told = connected();
  if (broken(rule::hear_left_out))
    std::erase_if(told, [&](const auto& who) { return !order.next.has_member(who); });
  send_to_all(told, order);
}

void supervisor::on_adopted(const plan_adopted& a, time_point now) {
  // A newcomer says so when it is linked to all. (Members say it again on each connection.)
  std::erase_if(unready_links_, [&](const auto& l) { return l.first.first == a.who; });
  if (stage_ != stage::recovering || a.at != state_.at) return;
  awaited_.erase(a.who);
  std::erase_if(missing_links_, [&](const auto& l) { return l.first == a.who || l.second == a.who; });
  if (!awaited_.empty() && !broken(rule::start_after_all)) return;
  state_.current = state_.recovery->next;
  state_.started = true;
  state_.members_most =
      std::max(state_.members_most, static_cast<std::uint32_t>(state_.current.members.size()));
  stage_ = stage::running;
  look_ = true;
  deadline_.reset();
  if (!broken(rule::persist_start)) persist();
  note(event_kind::plan_started, to_string(state_.current.id),
       std::to_string(state_.current.members.size()) + " members adopted it",
       {{"step", to_string(state_.recovery->settled + 1)}});
  for (const auto& m : state_.current.members) send(m.who, start_order{state_.at});
  propose_if_wanted(now);
}

void supervisor::on_complaint(const link_complaint& c, time_point now) {
  if (c.at != state_.at || !workers_.contains(c.who)) return;
  // Who has left is told to let its links go, and that may be noticed before the verdict that let it leave.
  if (!broken(rule::heed_involved) && stage_ == stage::running &&
      (!is_involved(c.who) || !is_involved(c.about)))
    return;
  if (stage_ == stage::reconnecting) complaint_ = c;  // dealt with when all are back
  if (stage_ != stage::running && stage_ != stage::recovering) return;
  const auto link = link_between(c.who, c.about);
  if (stage_ == stage::recovering && awaited_.contains(c.who)) {
    missing_links_.insert(link);  // it has not come back yet: see give_up_on_links
    return;
  }
  if (is_learner(c.who)) {
    unready_links_.try_emplace({c.who, c.about}, now);  // its READY cannot reach all: see give_up_on_links
    return;
  }
  link_record_.broke(link, now);
  const auto hopeless = link_record_.hopeless(now);
  if (!hopeless.empty())
    return let_go_of_cover(hopeless, "the link between them breaks again and again", now);
  open_era("link", "the link from " + name_of(c.who) + " to " + name_of(c.about) + " broke: " + c.why, now);
}

// Members that do not find each other, though both are heard, would keep the plan from ever starting.
void supervisor::give_up_on_links(time_point now) {
  for (const auto& [nodes, a] : apart_) look_ = look_ || now >= a.until;
  std::erase_if(apart_, [&](const auto& a) { return now >= a.second.until + a.second.probation; });
  if (!state_.pending) unready_links_.clear();
  std::vector<broken_link> unready;
  for (const auto& [link, since] : unready_links_)
    if (now - since >= options_.link_patience && workers_.contains(link.first) &&
        workers_.contains(link.second))
      unready.push_back(link_between(link.first, link.second));
  if (stage_ == stage::running && !unready.empty()) {
    unready_links_.clear();
    return let_go_of_cover(unready, "a newcomer has no link to a member, though both are heard", now);
  }
  if (stage_ != stage::recovering || missing_links_.empty() || now - decided_at_ < options_.link_patience)
    return;
  std::vector<broken_link> links;
  for (const auto& l : missing_links_)
    if (workers_.contains(l.first) && workers_.contains(l.second)) links.push_back(l);
  missing_links_.clear();
  let_go_of_cover(links,
                  "no link between them for " + std::to_string(options_.link_patience.count()) +
                      " ms, though both are heard",
                  now);
}

void supervisor::let_go_of_cover(const std::vector<broken_link>& links, const std::string& why,
                                 time_point now) {
  const auto& held = stage_ == stage::recovering ? state_.recovery->next : state_.current;
  std::map<incarnation, departure_cost> costs;
  std::string pairs;
  for (const auto& [a, b] : links) {
    pairs += (pairs.empty() ? "" : ", ") + name_of(a) + " and " + name_of(b);
    for (const auto& who : {a, b}) {
      auto& c = costs[who];
      c = {};
      for (std::uint32_t t = 0; t < held.holders.size(); ++t) c.tiles += held.holds(who, tile_id(t)) ? 1 : 0;
      if (const auto* m = held.find(who))
        for (const auto& blocks : m->blocks) c.slots += blocks.size;
      if (const auto w = workers_.find(who); w != workers_.end())
        c.age = static_cast<std::uint64_t>((now - w->second.since).count());
    }
  }
  const auto cover = smallest_cover(links, costs);
  for (const auto& [a, b] : links) {
    if (!workers_.contains(a) || !workers_.contains(b)) continue;
    const auto nodes = link_between(workers_.at(a).hello.node, workers_.at(b).hello.node);
    if (nodes.first.is_none() || nodes.first == nodes.second) continue;
    auto& known = apart_[nodes];
    known.probation = known.probation.count() == 0 ? options_.probation : known.probation * 2;
    known.until = now + known.probation;
  }
  for (const auto& who : cover) {
    const auto& c = costs[who];
    const std::string reason = pairs + ": " + why + "; it is one of the " + std::to_string(cover.size()) +
                               " without whom all can talk, with the least to lose (" +
                               std::to_string(c.tiles) + " tiles, " + std::to_string(c.slots) + " slots)";
    note(event_kind::workers_apart, name_of(who), reason);
    out_.push_back(effect::kill{who, reason});
    lost(who, reason, now);
  }
}

void supervisor::stalled(const incarnation& who, const std::string& why, time_point now) {
  if (stage_ != stage::running || !is_member(who)) return;
  const auto step = state_.newest ? state_.newest->step : step_number(0);
  if (stalled_ != step) {
    stalled_ = step;
    return open_era("stall", "all wait for " + name_of(who) + ", as far as can be told: " + why, now);
  }
  stalled_.reset();
  const std::string reason = "all wait for it again after a new era: " + why;
  out_.push_back(effect::kill{who, reason});
  lost(who, reason, now);
}

// Whoever is awaited beyond the deadline costs the cluster more than its own part.
void supervisor::give_up_on_silent(time_point now) {
  const auto silent = awaited_;
  for (const auto& who : silent) {
    out_.push_back(effect::kill{who, "said nothing within the time to adopt a plan"});
    lost(who, "said nothing within the time to adopt a plan", now);
    if (stage_ != stage::fencing) return;
  }
}

// A newcomer that never gets ready would keep all further plans waiting.
void supervisor::give_up_on_learners(time_point now) {
  if (stage_ != stage::running || !state_.pending || state_.current.action == plan_action::pause) {
    learn_deadline_.reset();
    return;
  }
  if (!learn_deadline_) learn_deadline_ = now + options_.learn_timeout;
  if (now < *learn_deadline_) return;
  learn_deadline_.reset();
  const std::string why = "it has not copied what it should hold within " +
                          std::to_string(options_.learn_timeout.count()) + " ms";
  for (const auto& m : state_.pending->next.members)
    if (is_learner(m.who)) {
      out_.push_back(effect::kill{m.who, why});
      return lost(m.who, why, now);
    }
}

// ---- events

void supervisor::received(const worker_message& m, time_point now) {
  if (stage_ == stage::ended) return;
  const auto who = std::visit([](const auto& x) { return x.who; }, m);
  if (is_fenced(who) && !broken(rule::drop_fenced)) return send(who, fenced_order{state_.at});
  std::visit(overloaded{[&](const worker_hello& x) {
                          const auto known = workers_.find(x.who);
                          arrived(x, known == workers_.end() ? node_labels{} : known->second.at, now);
                        },
                        [&](const inventory_report& x) { on_inventory(x, now); },
                        [&](const plan_adopted& x) { on_adopted(x, now); },
                        [&](const verdict_report& x) { on_verdict(x, now); },
                        [&](const link_complaint& x) { on_complaint(x, now); },
                        [&](const released_report& x) { on_released(x, now); },
                        [&](const chunk_report& x) {
                          if (x.timeline == state_.timeline) out_.push_back(effect::collect{x});
                        },
                        [&](const final_report& x) { on_final(x, now); },
                        [&](const worker_failure& x) { lost(x.who, x.why, now); },
                        [](const job_ready&) { /* the shell's: it says arrived() */ }},
             m);
}

void supervisor::checkpoint_committed(const restore_point& point, time_point now) {
  restore_ = point;
  finish_if_complete(now);
}

void supervisor::tick(time_point now) {
  if (stage_ == stage::ended) return;
  if (stage_ == stage::waiting) return begin_if_enough(now);
  if (stage_ == stage::reconnecting) return resume_if_complete(now);
  give_up_on_links(now);
  if (deadline_ && now >= *deadline_) give_up_on_silent(now);
  watch_drains(now);
  give_up_on_learners(now);
  finish_if_complete(now);
  propose_if_wanted(now);
}

void supervisor::on_final(const final_report& r, time_point now) {
  if (r.timeline != state_.timeline || r.step.value != job_.steps) return;
  finals_[r.who] = r;
  finish_if_complete(now);
}

// The hash of each tile at the last step, once every tile has been reported and all members agree.
std::optional<std::vector<std::uint64_t>> supervisor::final_hashes() {
  std::vector<std::uint64_t> hashes(options_.tiles, 0);
  for (const auto& m : state_.current.members) {
    const auto f = finals_.find(m.who);
    if (f == finals_.end() || f->second.timeline != state_.timeline) return std::nullopt;
    for (std::size_t t = 0; t < hashes.size() && t < f->second.tile_hashes.size(); ++t) {
      const auto h = f->second.tile_hashes[t];
      if (h == 0) continue;
      if (hashes[t] != 0 && hashes[t] != h) {
        end(event_kind::job_failed, "holders of tile " + std::to_string(t) + " end with different state", {});
        return std::nullopt;
      }
      hashes[t] = h;
    }
  }
  // A new holder may have yet to report its tile.
  if (std::find(hashes.begin(), hashes.end(), 0) != hashes.end()) return std::nullopt;
  return hashes;
}

// The job ends when its last state is known and saved; a disk that does not take it only delays the end.
void supervisor::finish_if_complete(time_point now) {
  if (stage_ != stage::running || finals_.empty()) return;
  auto hashes = final_hashes();
  if (!hashes) return;
  const bool saved = restore_.source.step.value == job_.steps && restore_.source.timeline == state_.timeline;
  if (!final_deadline_) final_deadline_ = now + options_.final_checkpoint;
  if (!saved && now < *final_deadline_) return;
  if (!saved)
    note(event_kind::checkpoint_dropped, std::to_string(job_.steps),
         "the last step's was not written in time");
  end(event_kind::job_finished, "step " + std::to_string(job_.steps) + " is applied everywhere",
      std::move(*hashes));
}

void supervisor::end(event_kind how, const std::string& why, std::vector<std::uint64_t> hashes) {
  if (stage_ == stage::ended) return;
  stage_ = stage::ended;
  state_.ended = true;
  deadline_.reset();
  persist();
  note(how, job_.name, why);
  send_to_all(connected(), dismiss_order{job_.name});
  out_.push_back(effect::end{how, why, std::move(hashes)});
}

}  // namespace perdura::coordinator
