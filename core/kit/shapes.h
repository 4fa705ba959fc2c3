#pragma once
#include "kit/case.h"

namespace tessera {

/// Shapes no attention can serve, one instance each: every one must be refused with a sentence, and the instance
/// destroyed afterwards.
Finding refuses_impossible_shapes(const Subject& subject);

}  // namespace tessera
