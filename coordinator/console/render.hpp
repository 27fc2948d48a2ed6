// Everything that perdura prints: tables and records, as aligned text for people or as JSON for machines. A
// command says what its columns are and fills the rows; how they look is decided here.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "actors/base/result.hpp"

namespace perdura::console {

using value = boost::json::value;

// How a value is shown to people; JSON has it as it is, in the unit that its key ends in.
enum class unit : std::uint8_t {
  text,
  state,         // a word that is good, on its way, or bad
  number,        // up to four significant digits
  bytes,         // in KiB, MiB, ...
  milliseconds,  // as a length: "12.5 ms", "3 s", "1 h 02 min"
  date,          // milliseconds of Unix time, as local time
};

struct column {
  const char* key;    // in JSON; empty: for people only
  const char* title;  // for people; empty: in JSON only
  unit as = unit::text;
};

struct table {
  std::vector<column> columns;
  std::vector<std::vector<value>> rows;
  const char* when_empty = "none";
};

struct field {
  column what;
  value is;
};

struct record {
  std::vector<field> fields;
};

struct part {
  const char* key;
  const char* title;
  std::variant<record, table> body;
};

// More than one table or record. One JSON object, with a key for each.
struct document {
  std::vector<part> parts;
};

// JSON has no infinities: what is not finite becomes null.
value number(double v);

struct style {
  bool json = false;
  bool colour = false;  // ask wants_colour()
};

// Colours only on a terminal, and not where NO_COLOR is set (no-color.org).
bool wants_colour(int file_descriptor);

class renderer {
 public:
  renderer(std::ostream& out, std::ostream& err, style look) : out_(out), err_(err), look_(look) {}

  void show(const table& t);
  void show(const record& r);
  void show(const document& d);
  // One event or step of a stream: a row without a header, or one JSON object a line.
  void show_row(const table& t, std::size_t row);
  // A sentence for people; nothing in JSON.
  void say(std::string_view line);
  void fail(const error& e);

  bool is_json() const { return look_.json; }
  std::ostream& out() { return out_; }
  std::ostream& err() { return err_; }

 private:
  void show_text(const table& t);
  void show_text(const record& r);

  std::ostream& out_;
  std::ostream& err_;
  style look_;
};

// As shown to people, without colour. Control characters are replaced: text comes from other machines.
std::string to_text(const value& v, unit as);

}  // namespace perdura::console
