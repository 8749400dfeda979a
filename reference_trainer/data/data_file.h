// Reading and writing text data files: whole-file reads, a cursor over their lines, strict number
// parsing, and the one error type of every loader, which names file, line, what is wrong and what
// is allowed. Used on the thread that calls; no shared state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::trainer {

// A data file that cannot be used. what() is whole: "FILE:LINE: what is wrong; what is allowed".
class DataError : public std::runtime_error {
 public:
  // line 0: the error concerns the file as a whole.
  DataError(const std::filesystem::path& file, std::size_t line, const std::string& message);
};

// The file's bytes. Throws DataError if it cannot be read, is not a regular file, or is empty;
// `expected` says what should be in it.
std::string read_data_file(const std::filesystem::path& file, std::string_view expected);

// Writes the file under another name first and renames it, so that nobody sees half of it.
// Throws DataError with the system's reason.
void write_data_file(const std::filesystem::path& file, std::string_view content);

// Walks over the lines of a text. Every line must end in a newline: a file without one at its end
// was cut off, however plausible its last line looks (a timestamp that lost digits still parses).
class LineCursor {
 public:
  LineCursor(const std::filesystem::path& file, std::string_view text);

  // The next line without its end ("\n" or "\r\n"), or nothing at the end of the text. Throws
  // DataError for a last line that has no newline.
  std::optional<std::string_view> next();

  std::size_t line() const { return line_; }  // number of the line returned last, from 1

  // Throws DataError for the line returned last.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  const std::filesystem::path& file_;
  std::string_view rest_;
  std::size_t line_ = 0;
};

// A field for an error message: in quotes, cut to 40 bytes, unprintable bytes as \xNN.
std::string show_field(std::string_view field);

// The whole field as a number, or nothing. Decimal digits only for integers (no sign); for numbers
// what C's strtod takes without "inf", "nan", hexadecimal and leading space; a leading '+' is
// taken.
std::optional<std::uint64_t> parse_unsigned(std::string_view field);
std::optional<double> parse_number(std::string_view field);

// Cuts a line at every separator; empty fields are kept.
void split_fields(std::string_view line, char separator, std::vector<std::string_view>& fields);

}  // namespace syncd::trainer
