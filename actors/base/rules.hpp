// The rules of the step protocol that the simulator breaks on purpose, one at a time, to prove that it would
// notice. In production none is broken: the set is empty and each test of it is a load and a mask.
#pragma once

#include <cstdint>

namespace perdura {

enum class rule : std::uint8_t {
  // worker
  promise,              // a fenced-off era is ignored from the promise on, not from the new plan on
  vote_needs_gradient,  // vote only when g of all held tiles is here
  apply_needs_verdict,  // never at the vote
  carry_verdict,        // every frame carries the newest verdict
  keep_until_verdict,   // tiles that move away are kept until the first verdict under the new plan
  report_verdict,       // hellos, reports and inventories name the newest verdict observed
  half_copy_is_none,    // a half-copied tile is no holder
  hold_newer,           // frames of newer eras, or of a plan that has not started here, wait
  drop_older,           // frames of older eras are dropped
  await_ready,          // prepared only with READY from each learner
  switch_at_verdict,    // plans change at verdicts alone
  tag_parameters,       // gathered parameters count only at their version
  carry_norm,           // scalars come from the verdict, never recomputed
  all_votes,            // not a majority
  one_vote,             // the same to all, fixed once sent
  await_leavers,        // no vote under a new plan before each leaver acknowledged it
  answer_at_version,    // a request for parameters is answered with the version asked for, or not at all
  resume_at_version,    // a copy is not sent again only where the learner has that very version
  abandon_streamed,     // a block handed over in part is computed again after a fence
  newest_term,          // orders of lower terms than the highest seen are refused
  own_life,             // orders meant for another incarnation are refused
  whole_feed,           // a feed begins anew with each link
  feed_when_caught_up,  // an owner that is behind itself starts no feed
  redo_unseen,          // while an observed step is redone its verdict is not carried
  // coordinator
  stand_by_verdict,     // an observed verdict stands, its step is not redone
  decide_by_inventory,  // never from the old plan
  start_after_all,      // a plan starts when all its members have adopted it
  persist_era,
  persist_timeline,
  keep_verdict,  // a recovery replaces a verdict's successor but never edits the verdict
  persist_proposal,
  persist_start,
  drop_fenced,    // nothing that a fenced life says counts
  await_release,  // no proposal before all leavers of the last have let go
  hear_left_out,  // whoever promised and was left out is told
  heed_involved,  // a broken link counts only between those that the plan needs
  excuse_sleep,   // the time that the coordinator itself slept is nobody's silence
  count_,
};

inline constexpr unsigned rule_count = static_cast<unsigned>(rule::count_);
const char* to_string(rule r);

class broken_rules {
 public:
  constexpr broken_rules() = default;
  constexpr explicit broken_rules(rule r) : mask_(1ULL << static_cast<unsigned>(r)) {}
  constexpr bool has(rule r) const { return (mask_ >> static_cast<unsigned>(r)) & 1U; }

 private:
  std::uint64_t mask_ = 0;
};
static_assert(rule_count <= 64);

}  // namespace perdura
