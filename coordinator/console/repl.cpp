#include "coordinator/console/repl.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
// readline.h wants FILE.
#include <cstdio>
// clang-format off
#include <readline/readline.h>
#include <readline/history.h>
// clang-format on

#include "coordinator/console/line.hpp"

namespace perdura::console {

namespace {

constexpr int history_lines_max = 1000;

volatile std::sig_atomic_t is_interrupted = 0;
void note_interrupt(int) { is_interrupted = 1; }

// Readline calls plain functions without a pointer of ours.
session* completing_for = nullptr;

bool is_quit(const std::string& word) { return word == "quit" || word == "exit"; }

std::filesystem::path history_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state != '\0') return std::filesystem::path(state) / "perdura" / "history";
  if (home != nullptr && *home != '\0') return std::filesystem::path(home) / ".local/state/perdura/history";
  return {};
}

char* next_match(const char* text, int is_continued) {
  static std::vector<std::string> words;
  static std::size_t at = 0;
  if (is_continued == 0) {
    auto before = split_words(
        std::string(rl_line_buffer, static_cast<std::size_t>(rl_point) - std::string(text).size()));
    words = before ? completions(*completing_for, *before) : std::vector<std::string>{};
    at = 0;
  }
  while (at < words.size())
    if (const auto& word = words[at++]; word.rfind(text, 0) == 0) return strdup(word.c_str());
  return nullptr;
}

char** complete(const char* text, int, int) { return rl_completion_matches(text, next_match); }

exit_code run_line(const std::string& line, session& to, bool colour) {
  auto words = split_words(line);
  if (!words) {
    std::cerr << "perdura: " << words.failure().message << "\n";
    return exit_usage;
  }
  if (!words->empty() && words->front() == "help") words->front() = "--help";
  CLI::App app(
      "Ask the coordinator at " + to.to().host + ":" + std::to_string(to.to().port) + "; quit leaves.", "");
  parsed_line parsed;
  declare_commands(app, parsed.args, parsed.chosen);
  if (auto code = parse_words(app, parsed, *words, std::cout, std::cerr)) return *code;
  renderer view(std::cout, std::cerr, {parsed.args.json, colour});
  is_interrupted = 0;
  return run_command(*parsed.chosen, parsed.args, to, view, [] { return is_interrupted != 0; });
}

int run_script(session& to, bool colour) {
  int code = exit_ok;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line.front() == '#') continue;
    if (is_quit(line)) break;
    if (auto one = run_line(line, to, colour); one != exit_ok) code = one;
  }
  return code;
}

}  // namespace

std::vector<std::string> completions(session& to, const std::vector<std::string>& before) {
  std::vector<std::string> words;
  if (before.empty()) {
    words = {"ckpt", "help", "quit"};
    for (const auto& c : commands())
      if (std::string(c.name).find(' ') == std::string::npos) words.emplace_back(c.name);
    return words;
  }
  const auto& first = before.front();
  if (first == "ckpt" && before.size() == 1) return {"list", "now"};
  if (first == "submit") return {};
  auto api = to.open();
  if (!api) return {};
  if (first == "kill" || first == "drain") {
    auto workers = (*api)->workers();
    for (std::size_t i = 0; workers && i < workers->size(); ++i) words.push_back((*workers)[i].name);
    if (first == "kill") return words;
    auto nodes = (*api)->nodes();
    for (std::size_t i = 0; nodes && i < nodes->size(); ++i) words.push_back((*nodes)[i].name);
    return words;
  }
  auto jobs = (*api)->jobs();
  for (std::size_t i = 0; jobs && i < jobs->size(); ++i) {
    words.push_back((*jobs)[i].id);
    words.push_back((*jobs)[i].name);
  }
  return words;
}

int run_console(session& to, bool colour) {
  if (isatty(STDIN_FILENO) != 1) return run_script(to, colour);
  if (auto api = to.open(); !api) {
    std::cerr << "perdura: " << api.failure().message << "\n";
    return exit_unreachable;
  }
  completing_for = &to;
  rl_readline_name = "perdura";
  rl_attempted_completion_function = complete;
  rl_completer_word_break_characters = " \t\"'";
  const auto history = history_file();
  std::error_code ignored;
  if (!history.empty()) std::filesystem::create_directories(history.parent_path(), ignored);
  using_history();
  stifle_history(history_lines_max);
  read_history(history.c_str());
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  sigaction(SIGINT, &action, nullptr);
  std::cout << "Connected to " << to.to().host << ":" << to.to().port
            << ". help lists the commands, Tab completes.\n";
  while (char* typed = readline("perdura> ")) {
    const std::string line = typed;
    std::free(typed);
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    add_history(line.c_str());
    if (is_quit(line)) break;
    run_line(line, to, colour);
  }
  if (!history.empty()) write_history(history.c_str());
  return exit_ok;
}

}  // namespace perdura::console
