// Asio's own code, once (BOOST_ASIO_SEPARATE_COMPILATION is set for this folder).
#include <boost/asio/impl/src.hpp>
