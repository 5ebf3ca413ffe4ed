"""All the state there is: rows and bytes in one SQL database. It knows no dialect and no HTTP."""
