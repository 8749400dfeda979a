// Explanations of the C interface: what the daemon said, and views of it. Immutable once made; any
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/wire/explanation.h"
#include "syncd/client.h"

struct syncd_explanation {
  syncd::Explanation explanation;
  std::string text;                       // the whole as a sentence
  std::vector<syncd_waited_for> workers;  // their strings are those of `explanation`
};

namespace syncd::capi {

std::unique_ptr<syncd_explanation> make_explanation(Explanation given);

}  // namespace syncd::capi
