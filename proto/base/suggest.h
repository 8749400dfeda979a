// "Did you mean ...?" for misspelt names. Pure function; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace syncd {

// The known name that `wrong` most likely was meant to be: at most a third of its letters away.
// Empty if none is near.
std::string nearest(std::string_view wrong, const std::vector<std::string>& known);

}  // namespace syncd
