#include "chaos/proc/oracle.hpp"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace perdura::chaos {
namespace {

using position = std::pair<timeline_number, step_number>;

std::string to_text(const position& at) {
  return "step " + to_string(at.second) + " of timeline " + to_string(at.first);
}

void judge_order(const std::vector<applied_step>& seen, std::vector<std::string>& wrong) {
  std::map<std::string, position> newest;  // of each process
  for (const auto& s : seen) {
    position at{s.timeline, s.step};
    auto [known, is_first] = newest.try_emplace(s.who, at);
    if (is_first) continue;
    if (at == known->second) {
      wrong.push_back(s.who + " applied " + to_text(at) + " twice");
    } else if (at.first < known->second.first ||
               (at.first == known->second.first && at.second < known->second.second)) {
      wrong.push_back(s.who + " applied " + to_text(at) + " after " + to_text(known->second));
    }
    known->second = at;
  }
}

void judge_outcomes(const std::vector<applied_step>& seen, std::vector<std::string>& wrong) {
  std::map<position, const applied_step*> first;
  for (const auto& s : seen) {
    auto [known, is_first] = first.try_emplace(position{s.timeline, s.step}, &s);
    if (!is_first && known->second->outcome != s.outcome)
      wrong.push_back(to_text(known->first) + " has two outcomes: " + known->second->outcome + " for " +
                      known->second->who + ", " + s.outcome + " for " + s.who);
  }
}

void judge_cover(const std::vector<applied_step>& seen, step_number last, std::vector<std::string>& wrong) {
  std::map<timeline_number, std::set<step_number>> applied;
  for (const auto& s : seen) applied[s.timeline].insert(s.step);
  // A timeline's first step says where it branched off: before that, older ones count.
  step_number branch = last + 1;
  for (auto timeline = applied.rbegin(); timeline != applied.rend() && branch > step_number{1}; ++timeline) {
    step_number begin = *timeline->second.begin();
    for (step_number n = begin; n < branch; n = n + 1)
      if (!timeline->second.contains(n))
        wrong.push_back(to_text({timeline->first, n}) + " was never applied");
    branch = std::min(branch, begin);
  }
  for (step_number n{1}; n < branch; n = n + 1)
    wrong.push_back("step " + to_string(n) + " was never applied");
}

}  // namespace

std::vector<std::string> judge(const std::vector<applied_step>& seen, step_number last) {
  std::vector<std::string> wrong;
  judge_order(seen, wrong);
  judge_outcomes(seen, wrong);
  judge_cover(seen, last, wrong);
  return wrong;
}

std::vector<applied_step> read_traces(const std::filesystem::path& folder) {
  std::vector<applied_step> seen;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line) && !file.eof();) {
      std::istringstream words(line);
      applied_step s{.who = entry.path().filename(), .timeline = {}, .step = {}, .outcome = {}};
      words >> s.timeline.value >> s.step.value >> std::ws;
      std::getline(words, s.outcome);
      seen.push_back(std::move(s));
    }
  }
  return seen;
}

}  // namespace perdura::chaos
