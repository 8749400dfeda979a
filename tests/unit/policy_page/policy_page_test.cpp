// The pages have the registry's policies, no fewer and no more. daemon/core/policies/README.md
// keeps its word: every policy has its section with all its parameters and a picture, the defaults
// are the real ones, whatever looks like a policy string is one, and its examples behave as the
// policy's traits say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/core/engine/policy.h"
#include "daemon/core/planners/intervals.h"
#include "daemon/core/planners/zipline.h"
#include "daemon/core/policies/registry.h"
#include "daemon/core/topology/graph_spec.h"
#include "daemon/tools/sim/simulation.h"
#include "proto/wire/wire.h"

namespace syncd {
namespace {

const std::filesystem::path kTests = SYNCD_TEST_SOURCE_DIR;
const std::filesystem::path kRoot = kTests.parent_path();
const std::filesystem::path kFolder = kRoot / "daemon" / "core" / "policies";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  EXPECT_FALSE(out.str().empty()) << path;
  return out.str();
}

const std::string& page() {
  static const std::string text = read(kFolder / "README.md");
  return text;
}

std::vector<std::string> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.push_back((*it)[it->size() > 1 ? 1 : 0].str());
  }
  return found;
}

// What stands under "## `NAME`"; empty if there is no such heading.
std::string section(const std::string& name) {
  const std::string heading = "\n## `" + name + "`\n";
  const std::size_t begin = page().find(heading);
  if (begin == std::string::npos) return {};
  const std::size_t end = page().find("\n## ", begin + 1);
  return page().substr(begin, end == std::string::npos ? end : end - begin);
}

// Name and form of each policy of the registry: "bsp" and "bsp[:K][,backup=B]".
std::vector<std::pair<std::string, std::string>> registered() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const PolicyRow& row : all_policies()) all.emplace_back(row.name, row.form);
  return all;
}

std::vector<std::string> registered_names() {
  std::vector<std::string> names;
  for (const PolicyRow& row : all_policies()) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> code_spans(const std::string& text) {
  return all_matches(text, "`([^`\n]+)`");
}

// The policy strings of a section's line "Examples: `a`, `b`", which may go on over several lines.
std::vector<std::string> examples(const std::string& text) {
  const std::size_t begin = text.find("\nExamples:");
  if (begin == std::string::npos) return {};
  return code_spans(text.substr(begin, text.find("\n\n", begin + 1) - begin));
}

// "backup" of "naive_wait:50+asp" and the like goes to the overlay, not to its base.
std::string with_argument(const std::string& policy, const std::string& argument) {
  const std::size_t plus = policy.find('+');
  const std::string own = policy.substr(0, plus);
  const std::string rest = plus == std::string::npos ? "" : policy.substr(plus);
  return own + (own.find(':') == std::string::npos ? ":" : ",") + argument + rest;
}

std::string error_of(const std::string& policy) {
  std::string error;
  EXPECT_EQ(make_policy(policy, error), nullptr) << policy;
  return error;
}

TEST(PolicyPage, HasASectionForEveryPolicyWithExamplesAndAPicture) {
  for (const auto& [name, form] : registered()) {
    const std::string text = section(name);
    ASSERT_FALSE(text.empty()) << "no section '## `" << name << "`' for " << form;
    EXPECT_FALSE(examples(text).empty()) << name << ": no line 'Examples: `...`'";
    for (const char* part : {"**When.**", "**Guarantees.**"}) {
      EXPECT_NE(text.find(part), std::string::npos) << name << " lacks " << part;
    }
    EXPECT_NE(text.find("](doc/" + name + ".svg)"), std::string::npos) << name;
    EXPECT_TRUE(std::filesystem::exists(kFolder / "doc" / (name + ".svg"))) << name;
    EXPECT_NE(page().find("[" + name + "](#" + name + ")"), std::string::npos)
        << name << " lacks a link to its section in the list at the top";
  }
}

TEST(PolicyPage, EveryListOfPoliciesHasThoseOfTheRegistry) {
  const auto expected = testing::UnorderedElementsAreArray(registered_names());
  EXPECT_THAT(all_matches(page(), "\n## `([^`\n]*)`\n"), expected)
      << "the sections of " << kFolder / "README.md";
  EXPECT_THAT(all_matches(page(), "\n\\| \\[`([a-z_]*)`\\]\\(#"), expected)
      << "the first table of " << kFolder / "README.md";
  EXPECT_THAT(all_matches(read(kRoot / "README.md"),
                          "\n\\| \\[`[^`\n]*`\\]\\(daemon/core/policies/README.md#([a-z_]*)\\)"),
              expected)
      << "the table of README.md";
  const std::string manual = read(kRoot / "packaging" / "man" / "syncd.8.md");
  const std::size_t begin = manual.find("\n# CHOOSING A POLICY\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string choosing = manual.substr(begin, manual.find("\n# ", begin + 1) - begin);
  EXPECT_THAT(all_matches(choosing, "\n`([a-z_]*)[^`\n]*`\n: "), expected)
      << "CHOOSING A POLICY of packaging/man/syncd.8.md";
}

// A row of the first table says "no bound" where there is none, and so on.
TEST(PolicyPage, TheTableGivesTheBoundsThatPoliciesHave) {
  for (const PolicyRow& row : all_policies()) {
    const std::string name(row.name);
    const auto cells =
        all_matches(page(), "\n\\| \\[`" + name + "`\\][^|]*\\|[^|]*\\| ([^|]*) \\|");
    ASSERT_EQ(cells.size(), 1U) << name;
    const auto says = [&](const char* words) { return cells[0].find(words) != std::string::npos; };
    EXPECT_EQ(says("as its base policy"), row.lay_over != nullptr) << name;
    if (row.lay_over != nullptr) continue;
    std::string error;
    const auto traits = traits_of(examples(section(name))[0], error);
    ASSERT_TRUE(traits) << error;
    EXPECT_EQ(says("no bound"), !traits->gap_bound) << name;
    EXPECT_EQ(says("hops in the graph"), traits->family == Family::kDecentralized) << name;
  }
}

TEST(PolicyPage, EveryPolicyHasAGoldenScript) {
  for (const std::string& name : registered_names()) {
    bool found = false;
    for (const auto& entry : std::filesystem::directory_iterator(kTests / "golden" / "engine")) {
      const std::string script = entry.path().stem().string();
      found = found || script == name || script.starts_with(name + "_");
    }
    EXPECT_TRUE(found) << "tests/golden/engine has neither " << name << ".txt nor " << name
                       << "_*.txt";
  }
}

// What a run shows of a policy.
struct Seen final : sim::Observer {
  bool barrier = false, jump = false;
  void after_event(sim::Simulation&, const Event*, const Effects& effects) override {
    for (const Reply& reply : effects.replies) {
      if (const auto* granted = std::get_if<wire::Granted>(&reply.body)) {
        barrier = barrier || (granted->flags & wire::kStepBarrier) != 0;
        jump = jump || (granted->flags & wire::kStepSkip) != 0;
      }
    }
  }
};

// One slow worker, and uneven times: whatever a policy may do, it does.
TEST(PolicyPage, ExamplesBehaveAsTheirTraitsSay) {
  for (const auto& [name, form] : registered()) {
    for (const std::string& policy : examples(section(name))) {
      std::string error;
      const auto traits = traits_of(policy, error);
      ASSERT_TRUE(traits) << error;
      if (traits->family == Family::kGather) continue;  // of whose rounds nothing is simulated
      sim::Options options;
      options.workers = 12;
      options.policy = policy;
      options.iteration_time = *sim::parse_iteration_time("uniform:500-1500", error);
      options.slowdown.fixed = {{3, 12.0}};
      options.duration_us = 1'200'000'000;
      Seen seen;
      options.observer = &seen;
      const auto result = sim::simulate(options, error);
      ASSERT_TRUE(result) << policy << ": " << error;
      EXPECT_FALSE(result->stalled) << policy;
      EXPECT_EQ(result->longest_wait_us > 0, traits->waits) << policy;
      EXPECT_GE(result->longest_wait_us, traits->grant_delay_us) << policy;
      EXPECT_EQ(seen.barrier, traits->tells_barriers) << policy;
      EXPECT_EQ(result->barriers > 0, traits->tells_barriers || traits->barrier_every > 0)
          << policy;
      EXPECT_EQ(seen.jump || result->late_pushes > 0, traits->jumps) << policy;
      EXPECT_EQ(result->resyncs > 0, traits->may_resync) << policy;
      if (!traits->gap_bound) {
        EXPECT_GT(result->staleness_max, 100) << policy;
      } else if (traits->barrier_every == 0 || traits->all_meet) {
        EXPECT_LE(result->staleness_max, *traits->gap_bound) << policy;
      }
    }
  }
}

// What a policy takes is what its form says, and what it says itself to a parameter that it does
// not know.
TEST(PolicyPage, NamesEveryParameter) {
  for (const auto& [name, form] : registered()) {
    const std::string text = section(name);
    const std::vector<std::string> given = examples(text);
    ASSERT_FALSE(given.empty()) << name;
    const std::string error = error_of(with_argument(given[0], "no_such=1"));
    const std::string accepted = form + error.substr(error.find("': "));
    for (const std::string& key : all_matches(accepted, "[\\[,]([a-z_]+)=[A-Z0-9a-z|]+")) {
      EXPECT_NE(text.find("| `" + key + "="), std::string::npos)
          << name << " takes " << key << ", which has no row";
    }
    const std::string own_form = form.substr(name.size());
    for (const std::string& word : all_matches(own_form, "[:,+-]([A-Z_]+)")) {
      EXPECT_NE(text.find("| `" + word + "`"), std::string::npos)
          << name << " takes " << word << ", which has no row";
    }
  }
  const std::string elastic = section("elastic_bsp");
  for (const std::string& value :
       all_matches(std::string(planners::kNames<planners::ZiplineAlgorithm>) + ", " +
                       std::string(planners::kNames<planners::Predictor>) + ", " +
                       std::string(planners::kNames<planners::ZiplineObjective>),
                   "[a-z_]+")) {
    EXPECT_NE(elastic.find("`" + value + "`"), std::string::npos) << "elastic_bsp: " << value;
  }
  for (const std::string& graph : all_matches(topology::known_graphs(), "[^, ]+")) {
    EXPECT_NE(page().find("| `" + graph + "` |"), std::string::npos) << "graph " << graph;
  }
}

// A default in a row "| `key=N` | `4` | ..." makes the same policy as leaving the parameter out.
TEST(PolicyPage, GivesTheRealDefaults) {
  std::size_t checked = 0;
  for (const auto& [name, form] : registered()) {
    const std::string text = section(name);
    const std::vector<std::string> given = examples(text);
    ASSERT_FALSE(given.empty()) << name;
    std::string error;
    const auto plain = make_policy(given[0], error);
    ASSERT_NE(plain, nullptr) << error;
    const std::regex row("\n\\| `([^`]+)`[^|]*\\| `([^`]+)` \\|");
    for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
      const std::string parameter = (*it)[1], value = (*it)[2];
      const std::size_t equals = parameter.find('=');
      const std::string argument =
          equals == std::string::npos ? value : parameter.substr(0, equals + 1) + value;
      const auto explicitly = make_policy(with_argument(given[0], argument), error);
      ASSERT_NE(explicitly, nullptr) << name << ", " << argument << ": " << error;
      EXPECT_EQ(explicitly->name(), plain->name()) << argument << " is not the default";
      ++checked;
    }
  }
  EXPECT_GE(checked, 8U);
}

// The planner alone has another default than the policy: the page gives the command that shows what
// the policy does.
TEST(PolicyPage, ShowsSpecSyncsTuningWithThePolicysOwnCap) {
  const auto caps = all_matches(section("specsync"), "`syncctl plan specsync --cap ([a-z]+)`");
  ASSERT_EQ(caps.size(), 1U);
  std::string error;
  const auto plain = make_policy("specsync+asp", error);
  const auto capped = make_policy("specsync:adaptive,cap=" + caps[0] + "+asp", error);
  ASSERT_NE(plain, nullptr) << error;
  ASSERT_NE(capped, nullptr) << error;
  EXPECT_EQ(capped->name(), plain->name());
}

TEST(PolicyPage, ShowsOnlyPolicyStringsThatAreAccepted) {
  std::set<std::string> policies;
  for (const auto& [name, form] : registered()) {
    for (const std::string& example : examples(section(name))) policies.insert(example);
  }
  // Forms such as `ssp:S` have capitals or brackets.
  const auto add = [&](const std::string& text) {
    const std::string name = text.substr(0, text.find_first_of(":,+"));
    if (find_policy(name) == nullptr || name.size() == text.size()) return;
    if (text.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ[") == std::string::npos) {
      policies.insert(text);
    }
  };
  for (const std::string& span : code_spans(page())) add(span);
  for (const char* option :
       {"--policy ", "--compare ", "policies=", "policies\\+=,", "policy = \""}) {
    for (const std::string& list : all_matches(page(), std::string(option) + "([^ \"`\\\n]+)")) {
      for (const std::string& policy : split_policy_list(list)) policies.insert(policy);
    }
  }
  EXPECT_GE(policies.size(), 15U);
  for (const std::string& policy : policies) {
    std::string error;
    EXPECT_NE(make_policy(policy, error), nullptr) << error;
  }
}

// Nothing holds tokens back: a delayed grant would be asked for again without end.
TEST(PolicyPage, NaiveWaitIsLaidOverParameterServerPoliciesAlone) {
  for (const char* base : {"hop:ring", "notify_ack:ring"}) {
    EXPECT_THAT(error_of(std::string("naive_wait:50+") + base),
                testing::HasSubstr(std::string("'") + base + "' is decentralized"));
  }
}

}  // namespace
}  // namespace syncd
