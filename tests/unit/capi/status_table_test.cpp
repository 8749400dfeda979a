// The table of status codes in capi/README.md says what the headers and the library do.
#include <gtest/gtest.h>
#include <syncd/client.h>

#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "proto/base/status.h"

namespace syncd {
namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(SYNCD_TEST_SOURCE_DIR) + "/../capi/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The first group of every match.
std::vector<std::string> all_of(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

struct Row {
  int number = 0;
  bool retriable = false;
  bool fatal = false;
  std::string calls;  // as it is written
};

std::map<std::string, Row> table() {
  const std::string text = read("README.md");
  const std::regex line(
      R"(\| (-\d+) \| `(SYNCD_E_\w+)` \| [^|]+ \| (yes)? ?\| (yes)? ?\| ([^|]+) \|)");
  std::map<std::string, Row> rows;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    const auto& match = *at;
    const bool is_new = rows.emplace(match[2], Row{std::stoi(match[1]), match[3].matched,
                                                   match[4].matched, match[5]})
                            .second;
    EXPECT_TRUE(is_new) << match[2] << " is there twice";
  }
  return rows;
}

std::map<std::string, int> codes_of_header() {
  const std::string text = read("include/syncd/client.h");
  const std::regex line("(SYNCD_E_[A-Z_]+) = (-[0-9]+)");
  std::map<std::string, int> codes;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    codes[(*at)[1]] = std::stoi((*at)[2]);
  }
  return codes;
}

// Of a header's function: its name without syncd_, and the codes after "Errors:" in its comment.
struct Function {
  std::string name;
  std::set<std::string> codes;
};

std::vector<Function> functions(const std::string& header) {
  const std::string text = read("include/syncd/" + header);
  std::vector<Function> found;
  for (std::size_t at = text.find("SYNCD_API "); at != std::string::npos;
       at = text.find("SYNCD_API ", at + 1)) {
    const std::string declaration = text.substr(at, text.find(';', at) - at);
    const auto names = all_of(declaration, R"(\bsyncd_(\w+)\()");
    if (names.size() != 1) continue;  // the macro itself
    Function function{.name = names[0], .codes = {}};
    // A comment that ends where the declaration begins.
    const std::size_t end = text.rfind("*/", at);
    const std::size_t begin = text.rfind("/*", end);
    const std::string comment = text.substr(begin, end - begin);
    const std::size_t errors = comment.find("Errors:");
    if (at - end <= 3 && errors != std::string::npos) {
      const auto codes = all_of(comment.substr(errors), R"((SYNCD_E_\w+))");
      function.codes.insert(codes.begin(), codes.end());
    }
    found.push_back(function);
  }
  return found;
}

TEST(StatusTable, HasTheCodesOfTheHeader) {
  const auto header = codes_of_header();
  const auto rows = table();
  ASSERT_GE(header.size(), 28U) << "the header is not read";
  for (const auto& [name, number] : header) {
    ASSERT_TRUE(rows.contains(name)) << "capi/README.md has no row for " << name;
    EXPECT_EQ(rows.at(name).number, number) << name;
  }
  for (const auto& [name, row] : rows) EXPECT_TRUE(header.contains(name)) << name;
}

TEST(StatusTable, SaysWhatIsRetriableAndWhatIsFatal) {
  for (const auto& [name, row] : table()) {
    const auto status = static_cast<Status>(row.number);
    EXPECT_EQ(status_name(status), name);
    EXPECT_EQ(row.retriable, status_is_retriable(status)) << name;
    EXPECT_EQ(row.fatal, status_is_fatal(status)) << name;
  }
}

TEST(StatusTable, NamesEveryCallThatListsTheCode) {
  const auto rows = table();
  std::set<std::string> names;
  std::size_t listed = 0;
  for (const char* header : {"client.h", "update_queue.h", "server.h"}) {
    for (const Function& function : functions(header)) {
      names.insert(function.name);
      for (const std::string& code : function.codes) {
        // syncd_worker_poll() mentions the one error of syncd_begin() that it has not.
        if (function.name == "worker_poll" && code == "SYNCD_E_TIMEOUT") continue;
        ++listed;
        ASSERT_TRUE(rows.contains(code)) << code;
        const std::string& calls = rows.at(code).calls;
        EXPECT_TRUE(calls == "any" || calls.find("`" + function.name + "`") != std::string::npos)
            << code << ": capi/README.md does not name syncd_" << function.name;
      }
    }
  }
  EXPECT_GE(listed, 100U) << "the headers are not read";
  for (const auto& [code, row] : rows) {
    if (row.calls == "any" || row.calls == "none") continue;
    const auto calls = all_of(row.calls, R"(`(\w+)`)");
    EXPECT_FALSE(calls.empty()) << code;
    for (const std::string& call : calls) {
      EXPECT_TRUE(names.contains(call)) << code << ": there is no syncd_" << call;
    }
  }
}

}  // namespace
}  // namespace syncd
