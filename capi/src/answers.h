// Explanations and lists of members of the C interface: what the daemon said, and views of it.
// Immutable once made; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "libclient/session.h"
#include "syncd/client.h"

struct syncd_explanation {
  syncd::Explanation explanation;
  std::string text;                       // the whole as a sentence
  std::vector<syncd_waited_for> workers;  // their strings are those of `explanation`
};

struct syncd_members {
  syncd::client::MembersResult given;
  std::vector<syncd_member> list;  // their strings and data are those of `given`
};

struct syncd_view {
  syncd::client::ViewResult given;
  std::vector<syncd_view_member> list;  // their strings and data are those of `given`
};

struct syncd_checkpoint {
  syncd::wire::LatestCheckpointReply given;
  std::vector<syncd_checkpoint_shard> list;  // their strings are those of `given`
};

namespace syncd::capi {

std::unique_ptr<syncd_checkpoint> make_checkpoint(wire::LatestCheckpointReply given);

std::unique_ptr<syncd_explanation> make_explanation(Explanation given);
std::unique_ptr<syncd_members> make_members(client::MembersResult given);
std::unique_ptr<syncd_view> make_view(client::ViewResult given);

}  // namespace syncd::capi
