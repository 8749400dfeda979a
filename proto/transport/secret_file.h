// Reading files that hold secrets: tokens and private keys. Any thread; blocks on the disk.
#pragma once

#include <cstddef>
#include <string>

namespace syncd {

// The whole of a file that only its owner and group can reach. False, with a sentence in `error`
// that names the file and never its contents, if it cannot be read, is no regular file, has more
// than `bytes_max` bytes, or gives every user of the machine a right to it.
bool read_secret_file(const std::string& path, std::size_t bytes_max, std::string& text,
                      std::string& error);

// A client's token: the whole of such a file, without the newline at its end that an editor makes.
// False, likewise, also if it is empty.
inline constexpr std::size_t kTokenBytesMax = 4096;
bool read_token_file(const std::string& path, std::string& token, std::string& error);

// Overwrites the memory before it is given back, which an optimizer must not leave out.
void wipe(std::string& secret);

}  // namespace syncd
