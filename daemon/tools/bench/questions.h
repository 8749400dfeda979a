// What is asked beside the iterations, as people and programs do of a daemon at work. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::bench {

// The first three are asked by a worker of itself, the others by an operator of the job.
enum class Question : std::uint8_t {
  kExplain,
  kMembers,
  kPhase,
  kStatus,
  kJobs,
  kWorkers,
  kHistory,
};
inline constexpr std::array<const char*, 7> kQuestionNames = {
    "explain", "members", "phase", "status", "jobs", "workers", "history"};
inline const char* to_string(Question question) {
  return kQuestionNames[static_cast<std::size_t>(question)];
}
inline bool is_for_operator(Question question) {
  return question >= Question::kStatus;
}
// "explain,history". False: there is another word in it, which `error` names.
bool parse_questions(std::string_view text, std::vector<Question>& questions, std::string& error);

}  // namespace syncd::bench
