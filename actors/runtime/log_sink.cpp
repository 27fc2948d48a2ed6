#include "actors/runtime/log_sink.hpp"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

namespace perdura::runtime {

namespace {

// The facade's sink is a plain function, and the last lines are written while the process ends: never
// destroyed.
spdlog::logger* logger = nullptr;

spdlog::level::level_enum spd_level(log::level l) {
  switch (l) {
    case log::level::debug: return spdlog::level::debug;
    case log::level::info: return spdlog::level::info;
    case log::level::warn: return spdlog::level::warn;
    case log::level::error: return spdlog::level::err;
  }
  return spdlog::level::err;
}

// One event is one line, and no peer's text plays tricks with a terminal.
std::string printable(std::string_view line) {
  std::string out;
  out.reserve(line.size());
  for (const char c : line) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (code < 0x20 || code == 0x7f) {
      char text[5];
      std::snprintf(text, sizeof text, "\\x%02x", code);
      out += text;
    } else {
      out += c;
    }
  }
  return out;
}

void write_line(log::level l, std::string_view line) { logger->log(spd_level(l), printable(line)); }

// A percent sign begins a field of spdlog's pattern.
std::string escaped(const std::string& role) {
  std::string out;
  for (const char c : printable(role)) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

}  // namespace

result<void> open_log(const log_options& options) {
  try {
    spdlog::sink_ptr sink;
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      std::filesystem::create_directories(std::filesystem::absolute(options.file).parent_path());
      // spdlog counts the rotated ones without the current.
      const std::size_t rotated = options.files > 0 ? options.files - 1 : 0;
      sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(options.file, options.bytes_max, rotated);
    }
    auto made = std::make_unique<spdlog::logger>(options.role, std::move(sink));
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l " + escaped(options.role) + ": %v");
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    // A full disk must not flood standard error.
    made->set_error_handler([](const std::string&) {});
    // Another thread may be writing to the one before: it stays, too.
    static auto& opened = *new std::vector<std::unique_ptr<spdlog::logger>>;
    opened.push_back(std::move(made));
    logger = opened.back().get();
  } catch (const std::exception& e) {
    return error{errc::io, "cannot write the log " + options.file + ": " + e.what() +
                               "; choose another with log_folder"};
  }
  log::set_sink(write_line, options.least);
  return {};
}

result<log::level> parse_level(const std::string& text) {
  if (text == "debug") return log::level::debug;
  if (text == "info") return log::level::info;
  if (text == "warn") return log::level::warn;
  if (text == "error") return log::level::error;
  return error{errc::invalid_argument, "\"" + text + "\" is no log level: debug, info, warn or error"};
}

}  // namespace perdura::runtime
