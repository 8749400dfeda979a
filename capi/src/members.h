// Lists of members of the C interface. Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "libclient/session.h"
#include "syncd/client.h"

struct syncd_members {
  syncd::client::MembersResult given;
  std::vector<syncd_member> list;  // their strings and data are those of `given`
};

namespace syncd::capi {

std::unique_ptr<syncd_members> make_members(client::MembersResult given);

}  // namespace syncd::capi
