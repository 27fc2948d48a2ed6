#include "coordinator/console/logs.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <ostream>
#include <regex>
#include <sstream>
#include <thread>

namespace perdura::console {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds poll_interval{200};
constexpr std::uintmax_t tail_bytes_max = 4u << 20;  // looked at from the end, for the last lines

// A worker's name has a slash, its file's name has a dash.
std::string file_part(std::string name) {
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

bool is_chosen(const std::string& stem, const logs_options& options) {
  const auto name = file_part(options.name);
  const bool of_kind = options.kind.empty() || stem.rfind(options.kind, 0) == 0;
  const bool of_name = name.empty() || stem == name || stem == options.kind + "-" + name;
  return of_kind && of_name;
}

// What comes after `from`; moves it on. A file that shrank was rotated and is read from its beginning.
std::string read_from(const fs::path& file, std::uintmax_t& from) {
  std::error_code failed;
  const auto size = fs::file_size(file, failed);
  if (failed || size == from) return {};
  if (size < from) from = 0;
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(from));
  std::string text(static_cast<std::size_t>(std::min(size - from, tail_bytes_max)), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  // Half a line waits for its end.
  text.resize(text.find_last_of('\n') + 1);
  from += text.size();
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string without_controls(std::string line) {
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }, '?');
  return line;
}

}  // namespace

std::vector<fs::path> log_files(const logs_options& options) {
  static const std::regex rotated(R"(.*\.\d+)");
  std::vector<fs::path> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(options.folder, failed)) {
    const auto& path = entry.path();
    const auto stem = path.stem().string();
    if (!entry.is_regular_file(failed) || path.extension() != ".log" || std::regex_match(stem, rotated))
      continue;
    if (is_chosen(stem, options)) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

exit_code show_logs(const logs_options& options, std::ostream& out, std::ostream& err,
                    const std::function<bool()>& interrupted) {
  const auto files = log_files(options);
  if (files.empty()) {
    err << "perdura: no such log in " << options.folder.string()
        << "; --log FOLDER names another, and processes write there once they were started\n";
    return exit_failed;
  }
  std::map<fs::path, std::uintmax_t> places;
  auto print = [&](const fs::path& file, const std::vector<std::string>& lines, std::size_t first) {
    const auto prefix = files.size() > 1 ? file.stem().string() + ": " : "";
    for (std::size_t i = first; i < lines.size(); ++i) out << prefix << without_controls(lines[i]) << "\n";
  };
  for (const auto& file : files) {
    std::error_code failed;
    const auto size = fs::file_size(file, failed);
    auto& place = places[file];
    place = !failed && size > tail_bytes_max ? size - tail_bytes_max : 0;
    const auto lines = split_lines(read_from(file, place));
    print(file, lines, lines.size() > options.lines ? lines.size() - options.lines : 0);
  }
  out.flush();
  while (options.follow && !interrupted()) {
    std::this_thread::sleep_for(poll_interval);
    for (const auto& file : log_files(options)) print(file, split_lines(read_from(file, places[file])), 0);
    out.flush();
  }
  return exit_ok;
}

}  // namespace perdura::console
